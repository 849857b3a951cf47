//go:build tools

// Package strangers names the programs of others that Vanward is checked with, so that go.mod and go.sum hold their
// versions. `cargo xtask h2spec` and `cargo xtask grpc` build them.
package strangers

import (
	_ "github.com/summerwind/h2spec/cmd/h2spec"
	_ "google.golang.org/grpc/interop/client"
	_ "google.golang.org/grpc/interop/server"
)
