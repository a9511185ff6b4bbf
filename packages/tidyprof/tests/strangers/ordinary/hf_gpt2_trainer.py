"""Train a small GPT-2 on made-up sentences with the Hugging Face Trainer."""

import argparse
import random
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

VOCABULARY = 2000


class Sentences(Dataset):
    """Sequences in which each token follows from the one before, with some noise."""

    def __init__(self, count, length):
        rng = random.Random(5)
        self.rows = []
        for _ in range(count):
            token, row = rng.randrange(VOCABULARY), []
            for _ in range(length):
                row.append(token)
                token = (token * 31 + 7 + rng.randrange(3)) % VOCABULARY
            self.rows.append(torch.tensor(row))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--save-steps", type=int, default=0, help="keep a checkpoint each so many steps"
    )
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    args = parser.parse_args()
    set_seed(5)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=128,
            n_embd=160,
            n_layer=3,
            n_head=5,
            bos_token_id=1,
            eos_token_id=1,
        )
    )
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")
    with tempfile.TemporaryDirectory() as place:
        training = TrainingArguments(
            output_dir=place,
            per_device_train_batch_size=8,
            max_steps=100,
            learning_rate=args.learning_rate,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            logging_steps=20,
            save_strategy="steps" if args.save_steps else "no",
            save_steps=args.save_steps or 500,
            save_total_limit=2,
            report_to="none",
            disable_tqdm=True,
            dataloader_num_workers=0,
        )
        trainer = Trainer(model=model, args=training, train_dataset=Sentences(1200, 96))
        result = trainer.train()
    print(f"final loss {result.training_loss:.3f} after {result.global_step} steps")


if __name__ == "__main__":
    main()
