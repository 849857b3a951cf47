// A server with streams of the Go stack: server-sent events, WebSockets that echo and that fan out, and the service of gRPC's
// interoperability tests. And a client of that stack, which counts and times the same streams.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop"
	"google.golang.org/grpc/interop/grpc_testing"
)

var (
	plain   = flag.String("http", "", "address of HTTP/1.1")
	secure  = flag.String("https", "", "address of HTTPS, with HTTP/2")
	calls   = flag.String("grpc", "", "address of gRPC")
	secured = flag.String("grpcs", "", "address of gRPC with TLS")
	cert    = flag.String("cert", "", "file of the certificate")
	key     = flag.String("key", "", "file of its key")
	client  = flag.String("client", "", "events or echo: be a client of a URL")
	streams = flag.Int("streams", 10, "streams of the client")
	count   = flag.Int("count", 100, "messages of each stream of the client")
	rate    = flag.Float64("rate", 0, "messages per second of each stream that echoes; 0 is a closed loop")
)

func main() {
	flag.Parse()
	var err error
	switch *client {
	case "":
		err = serve()
	case "events":
		err = measure(readEvents)
	default:
		err = measure(converse)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	http.HandleFunc("/events", events)
	http.HandleFunc("/echo", echo)
	http.HandleFunc("/room", room)
	failed := make(chan error)
	go func() { failed <- http.ListenAndServe(*plain, nil) }()
	go func() { failed <- http.ListenAndServeTLS(*secure, *cert, *key, nil) }()
	go func() { failed <- serveCalls(*calls) }()
	credentials, err := credentials.NewServerTLSFromFile(*cert, *key)
	if err != nil {
		return err
	}
	go func() { failed <- serveCalls(*secured, grpc.Creds(credentials)) }()
	return <-failed
}

func serveCalls(address string, options ...grpc.ServerOption) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer(options...)
	grpc_testing.RegisterTestServiceServer(server, interop.NewTestServer())
	return server.Serve(listener)
}

// count events, rate of them a second.
func events(response http.ResponseWriter, request *http.Request) {
	count, _ := strconv.Atoi(request.FormValue("count"))
	rate, _ := strconv.ParseFloat(request.FormValue("rate"), 64)
	response.Header().Set("Content-Type", "text/event-stream")
	flusher := response.(http.Flusher)
	flusher.Flush()
	start := time.Now()
	for number := 1; number <= count; number++ {
		due := start.Add(time.Duration(float64(number) / rate * 1e9))
		select {
		case <-request.Context().Done():
			return
		case <-time.After(time.Until(due)):
		}
		fmt.Fprintf(response, "id: %d\ndata: {\"sent_ns\": %d}\n\n", number, time.Now().UnixNano())
		flusher.Flush()
	}
	// Whoever has everything ends it.
	<-request.Context().Done()
}

var upgrader = websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}

func echo(response http.ResponseWriter, request *http.Request) {
	connection, err := upgrader.Upgrade(response, request, nil)
	if err != nil {
		return
	}
	defer connection.Close()
	for {
		kind, message, err := connection.ReadMessage()
		if err != nil || connection.WriteMessage(kind, message) != nil {
			return
		}
	}
}

var (
	lock    sync.Mutex
	present = map[*websocket.Conn]bool{}
)

// What one sends, all get.
func room(response http.ResponseWriter, request *http.Request) {
	connection, err := upgrader.Upgrade(response, request, nil)
	if err != nil {
		return
	}
	defer connection.Close()
	lock.Lock()
	present[connection] = true
	lock.Unlock()
	defer func() {
		lock.Lock()
		delete(present, connection)
		lock.Unlock()
	}()
	for {
		kind, message, err := connection.ReadMessage()
		if err != nil {
			return
		}
		lock.Lock()
		for other := range present {
			_ = other.WriteMessage(kind, message)
		}
		lock.Unlock()
	}
}

// Runs all streams of the client, and prints how many messages there were and their delays in microseconds.
func measure(stream func(url string, number int, delay func(time.Duration)) error) error {
	url, delays := flag.Arg(0), []time.Duration{}
	var group sync.WaitGroup
	var first error
	start := time.Now()
	for number := 0; number < *streams; number++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			own := make([]time.Duration, 0, *count)
			err := stream(url, number, func(delay time.Duration) { own = append(own, delay) })
			lock.Lock()
			defer lock.Unlock()
			delays = append(delays, own...)
			if err != nil {
				first = err
			}
		}(number)
	}
	group.Wait()
	if first != nil {
		return first
	}
	sort.Slice(delays, func(one, other int) bool { return delays[one] < delays[other] })
	at := func(share float64) int64 { return delays[int(share*float64(len(delays)-1))].Microseconds() }
	fmt.Printf("messages=%d p50_us=%d p90_us=%d p99_us=%d seconds=%.3f\n",
		len(delays), at(0.5), at(0.9), at(0.99), time.Since(start).Seconds())
	return nil
}

func readEvents(url string, _ int, delay func(time.Duration)) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for received := 0; received < *count && lines.Scan(); {
		_, rest, found := strings.Cut(lines.Text(), "\"sent_ns\": ")
		if !found {
			continue
		}
		sent, err := strconv.ParseInt(strings.TrimSuffix(rest, "}"), 10, 64)
		if err != nil {
			return err
		}
		delay(time.Since(time.Unix(0, sent)))
		received++
	}
	return lines.Err()
}

// Sends a message when it is due, or when the one before is back, and waits for all to be back.
func converse(url string, number int, delay func(time.Duration)) error {
	connection, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http"), nil)
	if err != nil {
		return err
	}
	defer connection.Close()
	dues := make(chan time.Time, *count)
	if *rate > 0 {
		go func() {
			start := time.Now().Add(time.Duration(number) * time.Millisecond)
			for sent := 0; sent < *count; sent++ {
				due := start.Add(time.Duration(float64(sent) / *rate * 1e9))
				time.Sleep(time.Until(due))
				dues <- due
				_ = connection.WriteMessage(websocket.TextMessage, []byte(fmt.Sprintf("from=%d seq=%d", number, sent)))
			}
		}()
	}
	for received := 0; received < *count; received++ {
		if *rate == 0 {
			dues <- time.Now()
			text := []byte(fmt.Sprintf("from=%d seq=%d", number, received))
			if err := connection.WriteMessage(websocket.TextMessage, text); err != nil {
				return err
			}
		}
		if _, _, err := connection.ReadMessage(); err != nil {
			return err
		}
		delay(time.Since(<-dues))
	}
	return nil
}
