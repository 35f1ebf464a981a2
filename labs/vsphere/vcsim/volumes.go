package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmware/govmomi/cns"
	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/types"
)

// datastore lets a host mount a datastore, which is made if no other host of its datacenter has it.
func (h *hand) datastore(ctx context.Context, name, path string) error {
	host, err := find.NewFinder(h.client, false).HostSystem(ctx, path)
	if err != nil {
		return err
	}
	system, err := host.ConfigManager().DatastoreSystem(ctx)
	if err != nil {
		return err
	}
	place := filepath.Join(h.place, name) // the URL of a datastore, which is its own
	if err := os.MkdirAll(place, 0o700); err != nil {
		return err
	}
	_, err = system.CreateLocalDatastore(ctx, name, place)
	return err
}

// volume makes a volume of the CSI driver in a datastore, and returns its id.
func (h *hand) volume(ctx context.Context, path string) (string, error) {
	store, err := find.NewFinder(h.client, false).Datastore(ctx, path)
	if err != nil {
		return "", err
	}
	client, err := cns.NewClient(ctx, h.client)
	if err != nil {
		return "", err
	}
	task, err := client.CreateVolume(ctx, []cnstypes.CnsVolumeCreateSpec{{
		Name:       "volume",
		VolumeType: string(cnstypes.CnsVolumeTypeBlock),
		Datastores: []types.ManagedObjectReference{store.Reference()},
		BackingObjectDetails: &cnstypes.CnsBlockBackingDetails{
			CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: 16},
		},
	}})
	if err != nil {
		return "", err
	}
	info, err := cns.GetTaskInfo(ctx, task)
	if err != nil {
		return "", err
	}
	result, err := cns.GetTaskResult(ctx, info)
	if err != nil {
		return "", err
	}
	made := result.GetCnsVolumeOperationResult()
	if made.Fault != nil {
		return "", fmt.Errorf("no volume: %s", made.Fault.LocalizedMessage)
	}
	return made.VolumeId.Id, nil
}
