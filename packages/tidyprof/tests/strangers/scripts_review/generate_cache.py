"""Written by a developer who fills a table with continuations over night. A small GPT-2 from a
config samples twenty tokens for each batch of prompts, with the key-value cache.
"""

import torch
from instrument_me import Watch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
torch.manual_seed(21)
config = GPT2Config(
    vocab_size=1500,
    n_positions=128,
    n_embd=160,
    n_layer=4,
    n_head=5,
    bos_token_id=0,
    eos_token_id=0,
)
model = GPT2LMHeadModel(config).eval()
prompts = torch.randint(1, config.vocab_size, (14, 8, 24))
table = []

watch = Watch()
for number, prompt in enumerate(prompts):
    watch("generate")
    with torch.inference_mode():
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=20,
            min_new_tokens=20,
            do_sample=True,
            top_k=50,
            use_cache=True,
            pad_token_id=0,
        )
    watch("collect")
    table.extend(out[:, prompt.shape[1] :].tolist())
    if number % 5 == 0:
        print(number, len(table), table[-1][:6])
    watch.step()
watch.close()
