"""An sglang server that is asked over HTTP, whoever has started it."""
