"""Many sglangs: the release scan, and where a finding comes and goes."""
