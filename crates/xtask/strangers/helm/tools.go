//go:build tools

// Package helm pins Helm, which renders and checks the chart.
package helm

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
