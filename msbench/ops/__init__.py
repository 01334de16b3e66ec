"""The operations of the models: channel-last, for any length, each with a slow, simple reference."""
