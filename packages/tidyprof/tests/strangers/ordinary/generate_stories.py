"""Continue made-up prompts with a small random language model and `generate`."""

import argparse
import re
import time

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    StoppingCriteria,
    StoppingCriteriaList,
    set_seed,
)

VOCABULARY = 4000
NEW = 48


class Spelling:
    """From ids to text, piece by piece."""

    def __init__(self):
        self.pieces = [
            chr(97 + n % 26) + chr(97 + n // 26 % 26) + (" " if n % 3 == 0 else "")
            for n in range(VOCABULARY)
        ]

    def decode(self, ids):
        text = ""
        for n in ids:
            text += self.pieces[n]
        return text


class NoRepeats(StoppingCriteria):
    """Ends a story in which a phrase of a few letters comes forty times."""

    def __init__(self, spelling):
        self.spelling = spelling

    def repeats(self, text, size):
        counts = {}
        for start in range(len(text) - size):
            phrase = re.sub(r"[^a-z]", "", text[start : start + size])
            counts[phrase] = counts.get(phrase, 0) + 1
        return max(counts.values(), default=0) >= 40

    def __call__(self, input_ids, scores, **kwargs):
        stories = [self.spelling.decode(row) for row in input_ids.tolist()]
        ends = [
            any(self.repeats(story, size) for size in (6, 9, 12, 15, 18, 24)) for story in stories
        ]
        return torch.tensor(ends, device=input_ids.device)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--no-repeats", action="store_true", help="look for repeated phrases after each token"
    )
    args = parser.parse_args()
    set_seed(40)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=1024, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device).eval()
    criteria = StoppingCriteriaList([NoRepeats(Spelling())] if args.no_repeats else [])
    spelling = Spelling()
    for batch in range(8):
        prompts = torch.randint(1, VOCABULARY, (16, 192), device=device)
        begun = time.time()
        stories = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=NEW,
            do_sample=True,
            top_k=50,
            stopping_criteria=criteria,
        )
        rate = stories[:, 192:].numel() / (time.time() - begun)
        print(
            f"batch {batch}: {rate:.0f} tokens/s, {spelling.decode(stories[0, 192:204].tolist())!r}"
        )


if __name__ == "__main__":
    main()
