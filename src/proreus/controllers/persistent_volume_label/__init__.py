"""The controller `persistentvolume-label-controller` and the webhook `persistentvolume-label`."""
