// Plays the pods of a cluster that has none, and the controller of their endpoints: for each Deployment the echo server of the
// conformance suite runs as a process, and each Service with a selector gets an EndpointSlice that leads there.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// pod is a process in place of the pods of a Deployment, at these ports of the machine.
type pod struct {
	labels map[string]string
	// By the port that the process would have in a pod.
	ports map[int32]int32
}

type cluster struct {
	client  kubernetes.Interface
	address string
	echo    string
	folder  string
	pods    map[string]*pod
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	address := flag.String("address", "", "address of this machine that endpoints get; loopback addresses are refused by the API")
	echo := flag.String("echo", "", "the echo server")
	folder := flag.String("folder", "", "folder for certificates")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	c := &cluster{client: client, address: *address, echo: *echo, folder: *folder, pods: map[string]*pod{}}
	for {
		if err := c.round(context.Background()); err != nil {
			log.Print(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *cluster) round(ctx context.Context) error {
	deployments, err := c.client.AppsV1().Deployments("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		key := deployment.Namespace + "/" + deployment.Name
		if c.pods[key] != nil || !strings.Contains(deployment.Spec.Template.Spec.Containers[0].Image, "echo-basic") {
			continue
		}
		started, err := c.start(ctx, deployment)
		if err != nil {
			log.Printf("%s: %v", key, err)
			continue
		}
		c.pods[key] = started
		log.Printf("%s: %v", key, started.ports)
	}
	services, err := c.client.CoreV1().Services("").List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	for i := range services.Items {
		if err := c.serve(ctx, &services.Items[i]); err != nil {
			log.Printf("%s: %v", services.Items[i].Name, err)
		}
	}
	return nil
}

// start runs the process of a Deployment.
func (c *cluster) start(ctx context.Context, deployment *apps.Deployment) (*pod, error) {
	template := deployment.Spec.Template
	folder := filepath.Join(c.folder, deployment.Namespace, deployment.Name)
	places := map[string]string{}
	for _, volume := range template.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		place := filepath.Join(folder, volume.Name)
		if err := c.write(ctx, deployment.Namespace, volume.Secret, place); err != nil {
			return nil, err
		}
		places[volume.Name] = place
	}
	container := template.Spec.Containers[0]
	ports := map[int32]int32{3000: free(), 3001: free(), 8443: free()}
	environment := map[string]string{
		// As pods are called: the suite takes the last two words away.
		"POD_NAME":   deployment.Name + "-played-0",
		"NAMESPACE":  deployment.Namespace,
		"HTTP_PORT":  fmt.Sprint(ports[3000]),
		"H2C_PORT":   fmt.Sprint(ports[3001]),
		"HTTPS_PORT": fmt.Sprint(ports[8443]),
	}
	for _, variable := range container.Env {
		value := variable.Value
		for _, mount := range container.VolumeMounts {
			if rest, found := strings.CutPrefix(value, mount.MountPath+"/"); found {
				value = filepath.Join(places[mount.Name], rest)
			}
		}
		if variable.ValueFrom == nil && !strings.HasSuffix(variable.Name, "_PORT") {
			environment[variable.Name] = value
		}
	}
	command := exec.Command(c.echo)
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Stderr = os.Stderr
	// It ends with this process, however that ends.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return &pod{labels: template.Labels, ports: ports}, command.Start()
}

// write writes the items of a Secret as files.
func (c *cluster) write(ctx context.Context, namespace string, source *core.SecretVolumeSource, folder string) error {
	secret, err := c.client.CoreV1().Secrets(namespace).Get(ctx, source.SecretName, meta.GetOptions{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, item := range source.Items {
		if err := os.WriteFile(filepath.Join(folder, item.Path), secret.Data[item.Key], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// serve gives a Service with a selector its EndpointSlice.
func (c *cluster) serve(ctx context.Context, service *core.Service) error {
	target := c.selected(service)
	if target == nil {
		return nil
	}
	slice := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{
			Name:      service.Name + "-played",
			Namespace: service.Namespace,
			Labels:    map[string]string{discovery.LabelServiceName: service.Name},
		},
		AddressType: discovery.AddressTypeIPv4,
		Endpoints:   []discovery.Endpoint{{Addresses: []string{c.address}}},
	}
	for _, port := range service.Spec.Ports {
		number, isPlayed := target.ports[port.TargetPort.IntVal]
		if !isPlayed {
			continue
		}
		name, protocol := port.Name, port.Protocol
		slice.Ports = append(slice.Ports, discovery.EndpointPort{Name: &name, Port: &number, Protocol: &protocol})
	}
	slices := c.client.DiscoveryV1().EndpointSlices(service.Namespace)
	_, err := slices.Create(ctx, slice, meta.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *cluster) selected(service *core.Service) *pod {
	if len(service.Spec.Selector) == 0 {
		return nil
	}
	for key, pod := range c.pods {
		if !strings.HasPrefix(key, service.Namespace+"/") {
			continue
		}
		is := true
		for label, value := range service.Spec.Selector {
			is = is && pod.labels[label] == value
		}
		if is {
			return pod
		}
	}
	return nil
}

// free returns a port that was just free.
func free() int32 {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	return int32(listener.Addr().(*net.TCPAddr).Port)
}
