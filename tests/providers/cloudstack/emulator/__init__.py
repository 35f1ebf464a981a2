"""An emulator of CloudStack's API, on a real socket.

Commands, parameters and the fields of answers are those of CloudStack's own description of its API
(`apis.json`, made by `python -m tests.providers.cloudstack.emulator.record`); what commands do
follows its documentation. It checks every signature and every parameter, shows lists in pages,
works on jobs for as long as it is told to, counts requests as the API-limit plugin does, refuses
what is in conflict or in use, and fails before or after the effect of a command when a test asks.
"""
