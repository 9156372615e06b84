"""Whether two systems are the same: by what they accept of the same drafts on the same prompts."""
