"""An emulator of the APIs of Baidu AI Cloud that the provider calls."""
