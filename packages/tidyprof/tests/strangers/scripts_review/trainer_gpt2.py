"""Written by a student who learned training from the Hugging Face course.
Trains a small GPT-2 from a config on synthetic token sequences, with a Trainer of her own."""

from dataclasses import dataclass

import torch
from instrument_me import Watch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup


@dataclass
class Arguments:
    max_steps: int = 14
    per_device_train_batch_size: int = 6
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    warmup_steps: int = 4
    logging_steps: int = 5
    seed: int = 42


class Blocks(Dataset):
    def __init__(self, vocabulary, length, count):
        generator = torch.Generator().manual_seed(1)
        start = torch.randint(0, vocabulary, (count, 1), generator=generator)
        steps = torch.randint(1, 7, (count, length), generator=generator)
        self.ids = (start + steps.cumsum(1)) % vocabulary

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Trainer:
    def __init__(self, model, args, train_dataset):
        self.model, self.args = model, args
        self.loader = DataLoader(
            train_dataset, batch_size=args.per_device_train_batch_size, shuffle=True
        )
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay
        )
        self.scheduler = get_cosine_schedule_with_warmup(
            self.optimizer, args.warmup_steps, args.max_steps
        )
        self.state = {"global_step": 0, "log_history": []}

    def training_step(self, inputs, watch):
        self.model.train()
        watch("forward")
        loss = self.model(**inputs).loss
        watch("backward")
        loss.backward()
        return loss.detach()

    def train(self):
        watch = Watch()
        running = torch.zeros(())
        while self.state["global_step"] < self.args.max_steps:
            for inputs in self.loader:
                running += self.training_step(inputs, watch)
                watch("optimizer")
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                self.state["global_step"] += 1
                if self.state["global_step"] % self.args.logging_steps == 0:
                    entry = {
                        "loss": running.item() / self.args.logging_steps,
                        "lr": self.scheduler.get_last_lr()[0],
                    }
                    self.state["log_history"].append(entry)
                    print(entry)
                    running.zero_()
                watch.step()
                if self.state["global_step"] >= self.args.max_steps:
                    break
        watch.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    args = Arguments()
    torch.manual_seed(args.seed)
    config = GPT2Config(
        vocab_size=2000,
        n_positions=128,
        n_embd=256,
        n_layer=4,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.config.use_cache = False
    Trainer(model, args, Blocks(config.vocab_size, 128, 240)).train()
