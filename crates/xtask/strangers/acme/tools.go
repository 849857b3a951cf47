//go:build tools

// Package acme pins the test authority of ACME and its challenge server.
package acme

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
