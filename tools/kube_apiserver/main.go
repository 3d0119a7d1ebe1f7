// The API server of Kubernetes, as Kubernetes builds it: for `make kubernetes`, which installs the chart by it. The module of
// Kubernetes itself cannot be installed by `go install`, since it replaces parts of its own by folders that no proxy has.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
