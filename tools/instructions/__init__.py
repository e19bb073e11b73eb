"""Instructions per call, counted by an emulator."""
