package main

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// A machine as tests want it; what is left out stays as it is.
type machine struct {
	Name       string            `json:"name"`
	UUID       string            `json:"uuid"`
	HostName   *string           `json:"hostName"`
	Address    *string           `json:"address"`
	Nics       *[]nic            `json:"nics"`
	Power      string            `json:"power"`
	Connection string            `json:"connection"`
	Guest      string            `json:"guest"`
	CPUs       int32             `json:"cpus"`
	Memory     int32             `json:"memory"`
	Extra      map[string]string `json:"extra"`
	Folder     string            `json:"folder"`
	Pool       string            `json:"pool"`
	Host       string            `json:"host"`
}

// A nic of a machine, as the guest's tools report it.
type nic struct {
	Network   string   `json:"network"`
	Addresses []string `json:"addresses"`
	Device    int32    `json:"device"`
}

func (h *hand) create(ctx context.Context, machines []machine) error {
	finder := find.NewFinder(h.client, false)
	for _, m := range machines {
		folder, err := finder.Folder(ctx, m.Folder)
		if err != nil {
			return err
		}
		pool, err := finder.ResourcePool(ctx, m.Pool)
		if err != nil {
			return err
		}
		host, err := finder.HostSystem(ctx, m.Host)
		if err != nil {
			return err
		}
		spec := types.VirtualMachineConfigSpec{
			Name:     m.Name,
			Uuid:     m.UUID,
			GuestId:  m.Guest,
			NumCPUs:  m.CPUs,
			MemoryMB: int64(m.Memory),
			Files:    &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
		}
		task, err := folder.CreateVM(ctx, spec, pool, host)
		if err != nil {
			return err
		}
		if err := task.Wait(ctx); err != nil {
			return err
		}
	}
	return h.change(machines)
}

func (h *hand) change(machines []machine) error {
	own := h.model.Service.Context
	for _, m := range machines {
		vm, err := h.find(m.Name)
		if err != nil {
			return err
		}
		own.WithLock(vm, func() { own.Update(vm, m.changes(vm)) })
	}
	return nil
}

// changes are what the simulator would otherwise ask of a running guest, leaf by leaf.
func (m *machine) changes(vm *simulator.VirtualMachine) []types.PropertyChange {
	var all []types.PropertyChange
	assign := func(name string, value any) {
		all = append(all, types.PropertyChange{Name: name, Val: value})
	}
	if m.UUID != "" {
		assign("config.uuid", m.UUID)
		assign("summary.config.uuid", m.UUID)
	}
	if m.HostName != nil {
		assign("guest.hostName", *m.HostName)
	}
	if m.Address != nil {
		assign("guest.ipAddress", *m.Address)
	}
	if m.Nics != nil {
		nics := []types.GuestNicInfo{}
		for _, one := range *m.Nics {
			nics = append(nics, types.GuestNicInfo{
				Network: one.Network, IpAddress: one.Addresses, DeviceConfigId: one.Device, Connected: true,
			})
		}
		assign("guest.net", nics)
	}
	if m.Power != "" {
		assign("runtime.powerState", types.VirtualMachinePowerState(m.Power))
		assign("summary.runtime.powerState", types.VirtualMachinePowerState(m.Power))
	}
	if m.Connection != "" {
		assign("runtime.connectionState", types.VirtualMachineConnectionState(m.Connection))
	}
	options := vm.Config.ExtraConfig
	for key, value := range m.Extra {
		option := &types.OptionValue{Key: key, Value: value}
		options = append(options, option)
		all = append(all, types.PropertyChange{
			Name: fmt.Sprintf("config.extraConfig[%q]", key), Op: types.PropertyChangeOpAdd, Val: option,
		})
	}
	if len(m.Extra) != 0 {
		assign("config.extraConfig", options)
	}
	return all
}

func (h *hand) find(name string) (*simulator.VirtualMachine, error) {
	for _, one := range h.model.Map().All("VirtualMachine") {
		if vm, ok := one.(*simulator.VirtualMachine); ok && vm.Name == name {
			return vm, nil
		}
	}
	return nil, fmt.Errorf("no machine %s", name)
}

func (h *hand) destroy(ctx context.Context, name string) error {
	vm, err := h.find(name)
	if err != nil {
		return err
	}
	off := machine{Name: name, Power: string(types.VirtualMachinePowerStatePoweredOff)}
	if err := h.change([]machine{off}); err != nil {
		return err
	}
	task, err := object.NewVirtualMachine(h.client, vm.Reference()).Destroy(ctx)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}
