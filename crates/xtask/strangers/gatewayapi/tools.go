//go:build tools

// Package gatewayapi pins the conformance suite of the Gateway API and its echo server.
package gatewayapi

import (
	_ "sigs.k8s.io/gateway-api/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
