"""Give an SSH key to all instances: the controller `ssh-keys-controller`."""
