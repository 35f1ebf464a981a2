// A CSI driver for tests: it publishes empty directories, and needs an attachment before that.
// It registers itself with the kubelet whose directory it is given.
// https://github.com/container-storage-interface/spec/blob/master/spec.md
package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const name = "csi.proreus.test"

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	node, socket string
}

func (*driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (*driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (*driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (*driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (*driver) NodePublishVolume(_ context.Context, asked *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, os.MkdirAll(asked.TargetPath, 0o755)
}

func (*driver) NodeUnpublishVolume(_ context.Context, asked *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, os.RemoveAll(asked.TargetPath)
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: name, Endpoint: d.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (*driver) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

// The arguments are the node's name and the kubelet's directory.
func main() {
	kubelet := os.Args[2]
	here := filepath.Join(kubelet, "plugins", name)
	d := &driver{node: os.Args[1], socket: filepath.Join(here, "csi.sock")}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, d)
	serve(server, d.socket)
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, d)
	serve(registrar, filepath.Join(kubelet, "plugins_registry", name+"-reg.sock"))
	select {}
}

func serve(server *grpc.Server, socket string) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(server.Serve(listener)) }()
}
