package resilience

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A client that gives up on a slow server, tested with `vanward chaos` between them. Toxiproxy's client for Go works too.
func TestClientGivesUp(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	defer server.Close()
	api := startChaos(t)
	upstream := strings.TrimPrefix(server.URL, "http://")
	post(t, api+"/proxies", `{"name": "web", "listen": "127.0.0.1:0", "upstream": "`+upstream+`"}`)
	_, listen, _ := strings.Cut(get(t, api+"/proxies/web"), `"listen":"`)
	listen, _, _ = strings.Cut(listen, `"`)

	client := http.Client{Timeout: 500 * time.Millisecond}
	post(t, api+"/proxies/web/toxics", `{"name": "hangs", "type": "latency", "attributes": {"latency": 60000}}`)
	if response, err := client.Get("http://" + listen); err == nil {
		t.Errorf("the client waits for ever: %v", response.Status)
	}
	post(t, api+"/reset", "")
	if text := get(t, "http://"+listen); text != "ok" {
		t.Errorf("%q after the fault", text)
	}
}

// Starts the chaos proxy, and returns the URL of its API. It ends with the test.
func startChaos(t *testing.T) string {
	chaos := exec.Command(vanward(), "chaos", "--listen", "127.0.0.1:0")
	said, err := chaos.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := chaos.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { chaos.Process.Kill(); chaos.Wait() })
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), "listening on "); found {
			go io.Copy(io.Discard, said)
			return "http://" + strings.TrimRight(strings.Fields(address)[0], ",")
		}
	}
	t.Fatal("vanward chaos does not say where it listens")
	return ""
}

func post(t *testing.T, url, body string) {
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("%s: %s %s", url, response.Status, text)
	}
}

func get(t *testing.T, url string) string {
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}
