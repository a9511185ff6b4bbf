"""A research engineer's stripped-down Trainer: GPT-2 from a config, gradient accumulation, cosine
schedule.

Trains on token ids drawn from a random Markov chain.
"""

from dataclasses import dataclass

import torch
from instrument_me import Watch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup, set_seed


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 2
    learning_rate: float = 5e-4
    max_steps: int = 14
    warmup_steps: int = 3
    max_grad_norm: float = 1.0
    logging_steps: int = 5
    seed: int = 42


class MarkovTokens(Dataset):
    def __init__(self, vocab=1500, length=128, size=160):
        successors = torch.randint(0, vocab, (vocab, 4))
        ids = torch.randint(0, vocab, (size, 1))
        for _ in range(length - 1):
            pick = torch.randint(0, 4, (size,))
            ids = torch.cat([ids, successors[ids[:, -1], pick][:, None]], dim=1)
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Trainer:
    def __init__(self, model, args, train_dataset):
        self.model, self.args = model, args
        self.loader = DataLoader(
            train_dataset, batch_size=args.per_device_train_batch_size, shuffle=True
        )
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.lr_scheduler = get_cosine_schedule_with_warmup(
            self.optimizer, args.warmup_steps, args.max_steps
        )

    def training_step(self, inputs):
        self.watch("forward")
        loss = self.model(**inputs).loss / self.args.gradient_accumulation_steps
        self.watch("backward")
        loss.backward()
        return loss.detach()

    def train(self):
        self.model.train()
        self.watch = Watch()
        global_step, running, batches = 0, torch.zeros(()), iter(self.loader)
        while global_step < self.args.max_steps:
            for _ in range(self.args.gradient_accumulation_steps):
                self.watch("data")
                running += self.training_step(next(batches))
            self.watch("optimizer")
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
            self.optimizer.step()
            self.lr_scheduler.step()
            self.optimizer.zero_grad()
            global_step += 1
            if global_step % self.args.logging_steps == 0:
                mean = running.item() / self.args.logging_steps
                print(
                    {
                        "loss": round(mean, 4),
                        "lr": self.lr_scheduler.get_last_lr()[0],
                        "step": global_step,
                    }
                )
                running.zero_()
            self.watch.step()
        self.watch.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    args = TrainingArguments()
    set_seed(args.seed)
    config = GPT2Config(
        vocab_size=1500,
        n_positions=128,
        n_embd=256,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    Trainer(GPT2LMHeadModel(config), args, MarkovTokens()).train()
