"""The random models of sessions, written anew from a seed wherever they are needed."""
