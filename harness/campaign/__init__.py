"""Putting scenarios to a subject: profiles, the judging of one scenario, the Hypothesis hunt and the sweep."""
