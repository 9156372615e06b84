"""Multi-head latent attention (MLA) as in DeepSeek-V2, without its low rank of queries."""

import numpy as np
import numpy.typing as npt

from harness.reference.attending import Kept, frequencies, mix, turned
from harness.reference.checkpoint import Checkpoint, Values


class Latent:
    """Keys and values of all heads are made from one normed latent; a rotary part of the key is shared by all heads.

    Rotary positions turn neighbouring dimensions.
    """

    def __init__(self, model: Checkpoint) -> None:
        self.model = model
        config = model.config
        self.heads = int(config["num_attention_heads"])
        self.plain, self.rotary = int(config["qk_nope_head_dim"]), int(config["qk_rope_head_dim"])
        self.rank = int(config["kv_lora_rank"])
        self.turning = frequencies(float(config["rope_theta"]), self.rotary)
        self.nothing = (np.zeros((0, self.rank)), np.zeros((0, self.rotary)))

    def attend(self, layer: int, hidden: Values, kept: Kept) -> tuple[Values, Kept]:
        """See `Attending`; latents and rotary parts of keys are kept."""
        name, model = f"model.layers.{layer}.self_attn.", self.model
        positions = np.arange(len(kept[0]), len(kept[0]) + len(hidden))
        queries = model.project(hidden, f"{name}q_proj").reshape(len(hidden), self.heads, -1)
        queries = np.concatenate([queries[..., : self.plain], self._rotated(queries[..., self.plain :], positions)], -1)
        made = model.project(hidden, f"{name}kv_a_proj_with_mqa")
        latents = np.concatenate([kept[0], model.norm(made[:, : self.rank], f"{name}kv_a_layernorm")])
        rotary = np.concatenate([kept[1], self._rotated(made[:, np.newaxis, self.rank :], positions)[:, 0]])
        parts = model.project(latents, f"{name}kv_b_proj").reshape(len(latents), self.heads, -1)
        shared = np.broadcast_to(rotary[:, np.newaxis], (len(rotary), self.heads, self.rotary))
        keys, values = np.concatenate([parts[..., : self.plain], shared], axis=-1), parts[..., self.plain :]
        mixed = mix(queries, keys, values, (self.plain + self.rotary) ** -0.5)
        return model.project(mixed.reshape(len(hidden), -1), f"{name}o_proj"), (latents, rotary)

    def _rotated(self, heads: Values, positions: npt.NDArray[np.int64]) -> Values:
        pairs = turned(heads[..., 0::2], heads[..., 1::2], positions, self.turning)
        return np.stack(pairs, axis=-1).reshape(heads.shape)
