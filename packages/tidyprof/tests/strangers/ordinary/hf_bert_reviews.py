"""Fine-tune a small BERT to tell good reviews from bad ones, with the Hugging Face Trainer."""

import argparse
import random
import re
import tempfile
import unicodedata

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ai", "er", "on")]
GOOD, BAD = ("delight", "superb", "charm", "wonder"), ("dull", "awful", "broken", "bland")


class WordPieces:
    """Greedy longest match over a vocabulary of pieces, as BERT's reference tokenizer has it."""

    def __init__(self):
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        for piece in [*"abcdefghijklmnopqrstuvwxyz", *SYLLABLES, *GOOD, *BAD]:
            pieces += [piece, f"##{piece}"]
        self.ids = {piece: n for n, piece in enumerate(dict.fromkeys(pieces))}

    def clean(self, text):
        text = unicodedata.normalize("NFD", text.lower())
        return "".join(c for c in text if unicodedata.category(c) != "Mn")

    def pieces_of(self, word):
        found, start = [], 0
        while start < len(word):
            end = len(word)
            while start < end:
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    break
                end -= 1
            if start == end:
                return [self.ids["[UNK]"]]
            found.append(self.ids[piece])
            start = end
        return found

    def __call__(self, text, length):
        ids = [self.ids["[CLS]"]]
        for word in re.findall(r"\w+|[^\w\s]", self.clean(text)):
            ids += self.pieces_of(word)
        ids = [*ids[: length - 1], self.ids["[SEP]"]]
        mask = [1] * len(ids) + [0] * (length - len(ids))
        return ids + [0] * (length - len(ids)), mask


def review(rng):
    label = rng.randrange(2)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randrange(2, 6))) for _ in range(1500)]
    for _ in range(9):
        words[rng.randrange(60)] = rng.choice(GOOD if label else BAD)
    return " ".join(words).title(), label


class Reviews(Dataset):
    def __init__(self, count, tokenizer, ahead, length=64):
        rng = random.Random(17)
        self.texts = [review(rng) for _ in range(count)]
        self.tokenizer, self.length = tokenizer, length
        self.ready = [self.encode(*one) for one in self.texts] if ahead else None

    def encode(self, text, label):
        ids, mask = self.tokenizer(text, self.length)
        return {
            "input_ids": torch.tensor(ids),
            "attention_mask": torch.tensor(mask),
            "labels": torch.tensor(label),
        }

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.ready[index] if self.ready else self.encode(*self.texts[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tokenize-ahead", action="store_true", help="tokenize all reviews before training"
    )
    args = parser.parse_args()
    set_seed(17)
    tokenizer = WordPieces()
    config = BertConfig(
        vocab_size=len(tokenizer.ids),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=64,
    )
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as place:
        training = TrainingArguments(
            output_dir=place,
            per_device_train_batch_size=16,
            max_steps=100,
            learning_rate=3e-4,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model, args=training, train_dataset=Reviews(800, tokenizer, args.tokenize_ahead)
        )
        result = trainer.train()
    print(f"training loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
