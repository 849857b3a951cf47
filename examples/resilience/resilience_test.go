// Package resilience runs a plan of `vanward lab resilience`, with a test for each of its expectations: go test -v
package resilience

import (
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What is read of junit.xml.
type suite struct {
	Cases []struct {
		Phase   string `xml:"classname,attr"`
		Name    string `xml:"name,attr"`
		Failure *struct {
			Message string `xml:"message,attr"`
		} `xml:"failure"`
	} `xml:"testcase"`
}

// The program: VANWARD, or the one on the PATH.
func vanward() string {
	if program := os.Getenv("VANWARD"); program != "" {
		return program
	}
	return "vanward"
}

func TestResilience(t *testing.T) {
	out := t.TempDir()
	said, err := exec.Command(vanward(), "lab", "resilience", "plan.toml", "--quick", "--out", out).CombinedOutput()
	// 99: an expectation was missed. Which one is in junit.xml.
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 99) {
		t.Fatalf("%v\n%s", err, said)
	}
	file, err := os.ReadFile(filepath.Join(out, "junit.xml"))
	if err != nil {
		t.Fatal(err)
	}
	var results suite
	if err := xml.Unmarshal(file, &results); err != nil || len(results.Cases) == 0 {
		t.Fatalf("junit.xml: %v, %d cases", err, len(results.Cases))
	}
	for _, one := range results.Cases {
		t.Run(one.Phase+": "+one.Name, func(t *testing.T) {
			if one.Failure != nil {
				t.Error(one.Failure.Message)
			}
		})
	}
}
