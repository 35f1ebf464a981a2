"""Azure Resource Graph: rows that say of many Nodes at once that nothing has changed."""
