// Command chart renders and lints a Helm chart with Helm's own engine.
//
//	chart render DIRECTORY NAMESPACE < values.yaml
//	chart lint DIRECTORY NAMESPACE < values.yaml
//
// It does what `helm template` and `helm lint` do, without the rest of Helm: the release is named
// like the chart, and the cluster is one of Helm's default Kubernetes version.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 || (args[0] != "render" && args[0] != "lint") {
		return errors.New("usage: chart render|lint DIRECTORY NAMESPACE < values.yaml")
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	values, err := chartutil.ReadValues(text)
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	if args[0] == "lint" {
		return check(args[1], args[2], values)
	}
	return render(args[1], args[2], values)
}

func check(directory, namespace string, values chartutil.Values) error {
	result := lint.All(directory, values, namespace, true)
	for _, message := range result.Messages {
		fmt.Println(message)
	}
	if result.HighestSeverity >= support.WarningSev {
		return errors.New("the chart does not pass")
	}
	return nil
}

func render(directory, namespace string, values chartutil.Values) error {
	chart, err := loader.LoadDir(directory)
	if err != nil {
		return err
	}
	release := chartutil.ReleaseOptions{
		Name: chart.Name(), Namespace: namespace, Revision: 1, IsInstall: true,
	}
	all, err := chartutil.ToRenderValues(chart, values, release, nil)
	if err != nil {
		return err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return err
	}
	for _, manifest := range manifests {
		fmt.Printf("---\n%s\n", manifest.Content)
	}
	return nil
}
