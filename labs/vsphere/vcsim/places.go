package main

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// add makes a folder or a resource pool below another one.
func (h *hand) add(ctx context.Context, kind, parent, name string) error {
	finder := find.NewFinder(h.client, false)
	switch kind {
	case "folder":
		folder, err := finder.Folder(ctx, parent)
		if err == nil {
			_, err = folder.CreateFolder(ctx, name)
		}
		return err
	case "pool":
		pool, err := finder.ResourcePool(ctx, parent)
		if err == nil {
			_, err = pool.Create(ctx, name, types.DefaultResourceConfigSpec())
		}
		return err
	}
	return fmt.Errorf("unknown kind %s", kind)
}

// tag attaches a tag to what is at a path of the inventory; it makes tag and category if need be.
func (h *hand) tag(ctx context.Context, category, name, path string) error {
	found, err := object.NewSearchIndex(h.client).FindByInventoryPath(ctx, path)
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("nothing at %s", path)
	}
	client := rest.NewClient(h.client)
	if err := client.Login(ctx, h.login); err != nil {
		return err
	}
	defer func() { _ = client.Logout(ctx) }()
	manager := tags.NewManager(client)
	if _, err := manager.GetCategory(ctx, category); err != nil {
		made := tags.Category{Name: category, Cardinality: "MULTIPLE"}
		if _, err := manager.CreateCategory(ctx, &made); err != nil {
			return err
		}
	}
	if _, err := manager.GetTagForCategory(ctx, name, category); err != nil {
		if _, err := manager.CreateTag(ctx, &tags.Tag{Name: name, CategoryID: category}); err != nil {
			return err
		}
	}
	one, err := manager.GetTagForCategory(ctx, name, category)
	if err != nil {
		return err
	}
	return manager.AttachTag(ctx, one.ID, found.Reference())
}

// expire ends every session but its own, as half an hour of silence does.
func (h *hand) expire(ctx context.Context) error {
	manager := session.NewManager(h.client)
	own, err := manager.UserSession(ctx)
	if err != nil {
		return err
	}
	var all mo.SessionManager
	err = property.DefaultCollector(h.client).RetrieveOne(
		ctx, *h.client.ServiceContent.SessionManager, []string{"sessionList"}, &all)
	if err != nil {
		return err
	}
	var ids []string
	for _, one := range all.SessionList {
		if one.Key != own.Key {
			ids = append(ids, one.Key)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return manager.TerminateSession(ctx, ids)
}
