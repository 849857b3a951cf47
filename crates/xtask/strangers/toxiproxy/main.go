// A program that uses Toxiproxy's Go client as its README says, against whatever serves that API.
//
// Its arguments are the URL of the API and the address of a web server.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2/client"
)

func main() {
	if err := run(toxiproxy.NewClient(os.Args[1]), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(client *toxiproxy.Client, server string) error {
	proxies, err := client.Populate([]toxiproxy.Proxy{
		{Name: "go", Listen: "127.0.0.1:0", Upstream: server, Enabled: true},
		{Name: "go-off", Listen: "127.0.0.1:0", Upstream: server, Enabled: false},
	})
	if err != nil {
		return fmt.Errorf("populate: %w", err)
	}
	if len(proxies) != 2 || !proxies[0].Enabled || proxies[1].Enabled {
		return fmt.Errorf("populate made %+v", proxies)
	}
	// Those that Populate returns cannot be saved: the client takes them for new ones.
	proxy, err := client.Proxy("go")
	if err != nil {
		return fmt.Errorf("what was populated: %w", err)
	}
	steps := []struct {
		name string
		does func() error
	}{
		{"the version is told", func() error { return version(client) }},
		{"a request passes", func() error { return asks(proxy.Listen, 0) }},
		{"latency is felt", func() error { return latency(proxy) }},
		{"data is limited", func() error { return limited(proxy) }},
		{"a proxy that is disabled refuses", func() error { return disabled(proxy) }},
		{"what is wrong is told", func() error { return mistakes(client, proxy) }},
		{"reset leaves no toxic", func() error { return reset(client, proxy) }},
	}
	for _, step := range steps {
		if err := step.does(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	for _, proxy := range proxies {
		if err := proxy.Delete(); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}

func version(client *toxiproxy.Client) error {
	body, err := client.Version()
	if err != nil {
		return err
	}
	var told struct{ Version string }
	if err := json.Unmarshal(body, &told); err != nil {
		return fmt.Errorf("%q: %w", body, err)
	}
	if strings.Count(told.Version, ".") != 2 {
		return fmt.Errorf("it is %q", told.Version)
	}
	return nil
}

func latency(proxy *toxiproxy.Proxy) error {
	toxic, err := proxy.AddToxic("late", "latency", "upstream", 1, toxiproxy.Attributes{"latency": 200, "jitter": 0})
	if err != nil {
		return err
	}
	if toxic.Name != "late" || toxic.Stream != "upstream" || toxic.Toxicity != 1 {
		return fmt.Errorf("it is %+v", toxic)
	}
	if err := asks(proxy.Listen, 200*time.Millisecond); err != nil {
		return err
	}
	updated, err := proxy.UpdateToxic("late", 1, toxiproxy.Attributes{"latency": 300})
	if err != nil {
		return err
	}
	if updated.Attributes["latency"] != float64(300) {
		return fmt.Errorf("updated it is %+v", updated)
	}
	if err := asks(proxy.Listen, 300*time.Millisecond); err != nil {
		return err
	}
	return proxy.RemoveToxic("late")
}

func limited(proxy *toxiproxy.Proxy) error {
	if _, err := proxy.AddToxic("", "limit_data", "downstream", 1, toxiproxy.Attributes{"bytes": 3}); err != nil {
		return err
	}
	line, err := firstLine(proxy.Listen)
	if line != "HTT" {
		return fmt.Errorf("three bytes were to pass, and there were %q (%v)", line, err)
	}
	toxics, err := proxy.Toxics()
	if err != nil || len(toxics) != 1 || toxics[0].Name != "limit_data_downstream" {
		return fmt.Errorf("the toxics are %+v (%v)", toxics, err)
	}
	return nil
}

func disabled(proxy *toxiproxy.Proxy) error {
	if err := proxy.Disable(); err != nil {
		return err
	}
	if connection, err := net.Dial("tcp", proxy.Listen); err == nil {
		connection.Close()
		return fmt.Errorf("%s still takes connections", proxy.Listen)
	}
	return proxy.Enable()
}

func mistakes(client *toxiproxy.Client, proxy *toxiproxy.Proxy) error {
	if _, err := client.Proxy("nobody"); err == nil || !strings.Contains(err.Error(), "not found") {
		return fmt.Errorf("of a proxy that is not there: %v", err)
	}
	if _, err := client.CreateProxy(proxy.Name, proxy.Listen, proxy.Upstream); err == nil ||
		!strings.Contains(err.Error(), "already exists") {
		return fmt.Errorf("of a proxy that is there: %v", err)
	}
	if _, err := proxy.AddToxic("", "noise", "", 1, nil); err == nil || !strings.Contains(err.Error(), "invalid toxic type") {
		return fmt.Errorf("of a toxic that is none: %v", err)
	}
	return nil
}

func reset(client *toxiproxy.Client, proxy *toxiproxy.Proxy) error {
	if err := client.ResetState(); err != nil {
		return err
	}
	toxics, err := proxy.Toxics()
	if err != nil || len(toxics) != 0 {
		return fmt.Errorf("the toxics are %+v (%v)", toxics, err)
	}
	return asks(proxy.Listen, 0)
}

// asks has a request answered through the proxy, no sooner than that.
func asks(address string, least time.Duration) error {
	began := time.Now()
	line, err := firstLine(address)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "HTTP/1.1 200") {
		return fmt.Errorf("the answer is %q", line)
	}
	if took := time.Since(began); took < least {
		return fmt.Errorf("the answer took %v, and was to take %v", took, least)
	}
	return nil
}

func firstLine(address string) (string, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(connection).ReadString('\n')
}
