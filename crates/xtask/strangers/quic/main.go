// quic-go as a client and as a server of HTTP/3. Ends with 1 at the first surprise.
//
//	quic client ADDRESS [origin]            cases for the proxy or, for short pages, the origin
//	quic server VANWARD CERTIFICATE KEY     counts what `vanward load --h3` asks for, and compares
//	quic load RATE COUNT CONNECTIONS URL…   asks for the URLs in turn at that rate, and tells counts and times
//	quic serve CERTIFICATE KEY              serves until it is killed: pages, and digests of uploads
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const limit = 30 * time.Second

func main() {
	var err error
	switch {
	case len(os.Args) >= 3 && os.Args[1] == "client":
		err = client(os.Args[2], len(os.Args) == 3)
	case len(os.Args) == 5 && os.Args[1] == "server":
		err = server(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) > 5 && os.Args[1] == "load":
		err = paced(os.Args[2:5], os.Args[5:])
	case len(os.Args) == 4 && os.Args[1] == "serve":
		err = alone(os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("client ADDRESS [origin], server VANWARD CERTIFICATE KEY, serve CERTIFICATE KEY, or load RATE COUNT CONNECTIONS URL…")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func trusting() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
}

func client(address string, isProxy bool) error {
	type test struct {
		name string
		run  func(string) error
	}
	cases := []test{
		{"pages", pages},
		{"uploads", uploads},
		{"a hundred requests at once", hundred},
		{"sessions, with early data offered", sessions},
	}
	if isProxy {
		// The origin is for short pages, and knows a client by its address.
		cases = append(cases, test{"a client that moves", moves}, test{"long downloads", long}, test{"cancelled requests", cancels})
	}
	for _, one := range cases {
		if err := one.run(address); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Printf("%s: as it should be\n", one.name)
	}
	return nil
}

func ask(client *http.Client, method, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 3 {
		return nil, fmt.Errorf("%s over %s", response.Status, response.Proto)
	}
	return io.ReadAll(response.Body)
}

// with runs a case with a client of its own.
func with(run func(*http.Client) error) error {
	transport := &http3.Transport{TLSClientConfig: trusting()}
	defer transport.Close()
	return run(&http.Client{Transport: transport})
}

func blank(client *http.Client, address string, size int) error {
	body, err := ask(client, http.MethodGet, fmt.Sprintf("https://%s/blank/%d", address, size), nil)
	if err == nil && len(body) != size {
		err = fmt.Errorf("%d bytes instead of %d", len(body), size)
	}
	return err
}

func pages(address string) error {
	return with(func(client *http.Client) error {
		for _, size := range []int{0, 1, 1000, 100_000} {
			if err := blank(client, address, size); err != nil {
				return err
			}
		}
		return nil
	})
}

func uploads(address string) error {
	return with(func(client *http.Client) error {
		sent := bytes.Repeat([]byte("0123456789abcdef"), 64_000)
		body, err := ask(client, http.MethodPost, "https://"+address+"/echo-body", sent)
		if err == nil && !bytes.Equal(body, sent) {
			err = fmt.Errorf("%d other bytes came back", len(body))
		}
		return err
	})
}

func hundred(address string) error {
	return with(func(client *http.Client) error {
		failed := make(chan error, 100)
		for size := range 100 {
			go func() { failed <- blank(client, address, size) }()
		}
		for range 100 {
			if err := <-failed; err != nil {
				return err
			}
		}
		return nil
	})
}

func long(address string) error {
	return with(func(client *http.Client) error { return blank(client, address, 20_000_000) })
}

// cancels gives up half of its requests in the middle of their bodies: the others are answered as ever.
func cancels(address string) error {
	return with(func(client *http.Client) error {
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/blank/5000000", nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			if _, err := io.ReadFull(response.Body, make([]byte, 1000)); err != nil {
				return err
			}
			response.Body.Close()
			if err := blank(client, address, 1000); err != nil {
				return err
			}
		}
		return nil
	})
}

// sessions resumes one and sends its request early: that could be replayed, so it is answered after the handshake.
func sessions(address string) error {
	config := trusting()
	for round := range 2 {
		var connection *quic.Conn
		transport := &http3.Transport{
			TLSClientConfig: config,
			Dial: func(ctx context.Context, to string, tls *tls.Config, with *quic.Config) (*quic.Conn, error) {
				var err error
				connection, err = quic.DialAddrEarly(ctx, to, tls, with)
				return connection, err
			},
		}
		method := []string{http.MethodGet, http3.MethodGet0RTT}[round]
		_, err := ask(&http.Client{Transport: transport}, method, "https://"+address+"/blank/1000", nil)
		if err != nil {
			return err
		}
		state := connection.ConnectionState()
		if state.Used0RTT {
			return fmt.Errorf("early data was taken")
		}
		if state.TLS.DidResume != (round == 1) {
			return fmt.Errorf("connection %d: resumed is %v", round, state.TLS.DidResume)
		}
		// The ticket comes behind the handshake.
		time.Sleep(100 * time.Millisecond)
		transport.Close()
	}
	return nil
}

// moves goes on from another port, as behind a new binding of a NAT.
func moves(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return err
	}
	var connection *quic.Conn
	transport := &http3.Transport{
		TLSClientConfig: trusting(),
		Dial: func(ctx context.Context, _ string, tls *tls.Config, with *quic.Config) (*quic.Conn, error) {
			from, err := listen()
			if err != nil {
				return nil, err
			}
			connection, err = from.DialEarly(ctx, to, tls, with)
			return connection, err
		},
	}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	for range 3 {
		if err := blank(client, address, 100_000); err != nil {
			return err
		}
		from, err := listen()
		if err != nil {
			return err
		}
		path, err := connection.AddPath(from)
		if err != nil {
			return err
		}
		if err := path.Probe(ctx); err != nil {
			return fmt.Errorf("the new path does not answer: %w", err)
		}
		if err := path.Switch(); err != nil {
			return err
		}
	}
	return blank(client, address, 100_000)
}

func listen() (*quic.Transport, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	return &quic.Transport{Conn: socket}, err
}

// seen is what the server was asked for.
var seen struct {
	requests, bytes, handshakes, resumed atomic.Int64
}

func serve(writer http.ResponseWriter, request *http.Request) {
	seen.requests.Add(1)
	count, _ := io.Copy(io.Discard, request.Body)
	seen.bytes.Add(count)
	if request.URL.Path == "/reset" {
		panic(http.ErrAbortHandler)
	}
	var size int
	fmt.Sscanf(request.URL.Path, "/blank/%d", &size)
	writer.Header().Set("Content-Length", fmt.Sprint(size))
	writer.Header().Set("Link", "</a>")
	writer.WriteHeader(http.StatusEarlyHints)
	_, _ = io.Copy(writer, strings.NewReader(strings.Repeat("x", size)))
}

// alone serves pages of any length at /blank/N, and says what it was sent.
func alone(certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	fmt.Printf("listening on https://%s\n", socket.LocalAddr())
	server := http3.Server{
		Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			var size int
			if in.Method == "POST" {
				digest := sha256.New()
				io.Copy(digest, in.Body)
				fmt.Fprintf(out, "%x", digest.Sum(nil))
			} else if _, err := fmt.Sscanf(in.URL.Path, "/blank/%d", &size); err == nil {
				out.Header().Set("Content-Length", fmt.Sprint(size))
				out.Write(bytes.Repeat([]byte("x"), size))
			} else {
				out.WriteHeader(404)
			}
		}),
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}}),
	}
	return server.Serve(socket)
}

func server(vanward, certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	server := http3.Server{
		Handler:   http.HandlerFunc(serve),
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}}),
		ConnContext: func(ctx context.Context, connection *quic.Conn) context.Context {
			<-connection.HandshakeComplete()
			seen.handshakes.Add(1)
			if connection.ConnectionState().TLS.DidResume {
				seen.resumed.Add(1)
			}
			return ctx
		},
	}
	go server.Serve(socket)
	defer server.Close()
	port := socket.LocalAddr().(*net.UDPAddr).Port
	return compare(func(path string, flags ...string) (told, error) {
		return load(vanward, certificate, fmt.Sprintf("https://localhost:%d%s", port, path), flags)
	})
}

// told is what the generator says.
type told struct {
	Requests  int64            `json:"requests"`
	BodyBytes int64            `json:"body_bytes"`
	Errors    map[string]int64 `json:"errors"`
	Tls       struct {
		Resumed int64 `json:"resumed"`
	} `json:"tls"`
}

func load(vanward, certificate, url string, flags []string) (told, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	arguments := []string{"load", "--h3", "--json", "--quiet", "--max-errors", "100%", "--ca", certificate}
	command := exec.CommandContext(ctx, vanward, append(append(arguments, flags...), url)...)
	command.Stderr = os.Stderr
	var result told
	// A schedule that a busy machine is late for ends in an error, and is told all the same.
	out, _ := command.Output()
	return result, json.Unmarshal(out, &result)
}

func compare(load func(string, ...string) (told, error)) error {
	for _, one := range []struct {
		name, path                  string
		flags                       []string
		requests, handshakes, bytes int64
	}{
		{"a closed loop", "/blank/1000", []string{"-n", "600", "-c", "3", "-m", "8"}, 600, 3, 600_000},
		{"a schedule", "/blank/0", []string{"-R", "200", "-n", "200", "-c", "2", "-m", "4"}, 200, 2, 0},
		{"long bodies", "/blank/2000000", []string{"-n", "4", "-c", "1"}, 4, 1, 8_000_000},
		{"resumed sessions", "/blank/10", []string{"-n", "6", "-c", "1", "--no-keepalive"}, 6, 6, 60},
		{"resets", "/reset", []string{"-n", "5", "-c", "1"}, 5, 1, 0},
	} {
		for _, count := range []*atomic.Int64{&seen.requests, &seen.handshakes, &seen.resumed} {
			count.Store(0)
		}
		got, err := load(one.path, one.flags...)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		requests, handshakes, resumed := seen.requests.Load(), seen.handshakes.Load(), seen.resumed.Load()
		total := got.Requests + got.Errors["reset"]
		if total != one.requests || requests != one.requests || handshakes != one.handshakes ||
			got.BodyBytes != one.bytes || got.Tls.Resumed != resumed {
			return fmt.Errorf("%s: the generator tells %+v, the server saw %d requests, %d handshakes, %d resumed",
				one.name, got, requests, handshakes, resumed)
		}
		fmt.Printf("%s: the same counts on both sides\n", one.name)
	}
	return nil
}
