//go:build tools

// Package strangers names the programs of others that Vanward is checked with, so that go.mod and go.sum hold their
// versions. `cargo xtask h2spec`, `cargo xtask grpc`, `cargo xtask streams` and `cargo xtask toxiproxy` build them.
package strangers

import (
	_ "github.com/Shopify/toxiproxy/v2/cmd/cli"
	_ "github.com/summerwind/h2spec/cmd/h2spec"
	_ "google.golang.org/grpc/interop/client"
	_ "google.golang.org/grpc/interop/server"
)
