package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// figures are those of a load, named as `vanward load --json` names them.
type figures struct {
	Requests  int              `json:"requests"`
	Failed    int              `json:"failed"`
	BodyBytes int64            `json:"body_bytes"`
	Latency   map[string]int64 `json:"latency"`
}

// paced sends requests when they are due, however slow the server is. Times count from when a request was due.
func paced(numbers, urls []string) error {
	var settings [3]int
	for at, number := range numbers {
		value, err := strconv.Atoi(number)
		if err != nil || value < 1 {
			return fmt.Errorf("%q is no number of one or more", number)
		}
		settings[at] = value
	}
	rate, count, connections := settings[0], settings[1], settings[2]
	clients := make([]*http.Client, connections)
	for at := range clients {
		transport := &http3.Transport{TLSClientConfig: trusting()}
		defer transport.Close()
		clients[at] = &http.Client{Transport: transport, Timeout: limit}
	}
	took := make([]time.Duration, count)
	bytes := make([]int64, count)
	var running sync.WaitGroup
	began := time.Now()
	for number := range count {
		due := began.Add(time.Duration(number) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		running.Add(1)
		go func() {
			defer running.Done()
			took[number] = -1
			response, err := clients[number%connections].Get(urls[number%len(urls)])
			if err != nil {
				return
			}
			defer response.Body.Close()
			length, err := io.Copy(io.Discard, response.Body)
			if err == nil && response.StatusCode == http.StatusOK && response.ProtoMajor == 3 {
				took[number], bytes[number] = time.Since(due), length
			}
		}()
	}
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(summary(took, bytes))
}

func summary(took []time.Duration, bytes []int64) figures {
	var all figures
	for _, length := range bytes {
		all.BodyBytes += length
	}
	good := slices.DeleteFunc(took, func(one time.Duration) bool { return one < 0 })
	all.Requests, all.Failed = len(good), len(bytes)-len(good)
	if len(good) == 0 {
		return all
	}
	slices.Sort(good)
	var sum time.Duration
	for _, one := range good {
		sum += one
	}
	// The least time that so many percent do not exceed.
	at := func(percent int) int64 { return good[max((len(good)*percent+99)/100, 1)-1].Microseconds() }
	all.Latency = map[string]int64{
		"mean_us": (sum / time.Duration(len(good))).Microseconds(),
		"p50_us":  at(50), "p75_us": at(75), "p90_us": at(90), "p99_us": at(99),
	}
	return all
}
