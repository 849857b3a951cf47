// Calls methods of the interoperability server in gRPC-Web, as Connect's client for Go speaks it.
//
// Arguments: the URL of the proxy, and for https the file of the certificate to trust.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/interop/grpc_testing"
)

const service = "/grpc.testing.TestService/"

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url string, certificates []string) error {
	client, version := http.DefaultClient, 1
	if len(certificates) > 0 {
		pem, err := os.ReadFile(certificates[0])
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		client = &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trusted},
		}}
		version = 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// Which version is spoken is what the proxy and the client agree on.
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.ProtoMajor != version {
		return fmt.Errorf("HTTP/%d is spoken, not HTTP/%d", response.ProtoMajor, version)
	}
	for _, check := range []func(context.Context, *http.Client, string) error{unary, streaming, failing} {
		if err := check(ctx, client, url+service); err != nil {
			return err
		}
	}
	return nil
}

type unaryClient = connect.Client[grpc_testing.SimpleRequest, grpc_testing.SimpleResponse]

func simple(client *http.Client, url string) *unaryClient {
	return connect.NewClient[grpc_testing.SimpleRequest, grpc_testing.SimpleResponse](client, url, connect.WithGRPCWeb())
}

// Messages of all sizes, and metadata in the head and in the trailers.
func unary(ctx context.Context, client *http.Client, url string) error {
	call := simple(client, url+"UnaryCall")
	for _, size := range []int32{0, 1, 1000, 314159} {
		request := connect.NewRequest(&grpc_testing.SimpleRequest{
			ResponseSize: size, Payload: &grpc_testing.Payload{Body: make([]byte, 271828)},
		})
		request.Header().Set("x-grpc-test-echo-initial", "initial")
		request.Header().Set("x-grpc-test-echo-trailing-bin", connect.EncodeBinaryHeader([]byte{0xab, 0xab, 0xab}))
		response, err := call.CallUnary(ctx, request)
		if err != nil {
			return fmt.Errorf("a message of %d bytes: %w", size, err)
		}
		if got := len(response.Msg.GetPayload().GetBody()); got != int(size) {
			return fmt.Errorf("%d bytes instead of %d", got, size)
		}
		trailing, err := connect.DecodeBinaryHeader(response.Trailer().Get("x-grpc-test-echo-trailing-bin"))
		if response.Header().Get("x-grpc-test-echo-initial") != "initial" || err != nil || !bytes.Equal(trailing, []byte{0xab, 0xab, 0xab}) {
			return fmt.Errorf("metadata: %v, %v", response.Header(), response.Trailer())
		}
	}
	return nil
}

// Each message comes before the next is sent.
func streaming(ctx context.Context, client *http.Client, url string) error {
	call := connect.NewClient[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse](
		client, url+"StreamingOutputCall", connect.WithGRPCWeb())
	request := &grpc_testing.StreamingOutputCallRequest{}
	sizes := []int32{31415, 9, 2653, 58979}
	for _, size := range sizes {
		request.ResponseParameters = append(request.ResponseParameters,
			&grpc_testing.ResponseParameters{Size: size, IntervalUs: 20_000})
	}
	stream, err := call.CallServerStream(ctx, connect.NewRequest(request))
	if err != nil {
		return err
	}
	for _, size := range sizes {
		if !stream.Receive() {
			return fmt.Errorf("the stream ends before a message of %d bytes: %w", size, stream.Err())
		}
		if got := len(stream.Msg().GetPayload().GetBody()); got != int(size) {
			return fmt.Errorf("%d bytes instead of %d", got, size)
		}
	}
	if stream.Receive() || stream.Err() != nil {
		return fmt.Errorf("the stream does not end as it should: %w", stream.Err())
	}
	return stream.Close()
}

// A status with a message that has to be encoded, and a method that there is not.
func failing(ctx context.Context, client *http.Client, url string) error {
	const text = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
	request := connect.NewRequest(&grpc_testing.SimpleRequest{
		ResponseStatus: &grpc_testing.EchoStatus{Code: 14, Message: text},
	})
	_, err := simple(client, url+"UnaryCall").CallUnary(ctx, request)
	var failure *connect.Error
	if !errors.As(err, &failure) || failure.Code() != connect.CodeUnavailable || failure.Message() != text {
		return fmt.Errorf("the status is %v", err)
	}
	_, err = simple(client, url+"UnimplementedCall").CallUnary(ctx, connect.NewRequest(&grpc_testing.SimpleRequest{}))
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		return fmt.Errorf("the status of a method that there is not is %v", err)
	}
	return nil
}
