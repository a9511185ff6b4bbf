"""A server that answers requests in batches: clients put pictures into a queue, one thread runs the
model.
"""

import argparse
import queue
import random
import threading
import time
from concurrent.futures import Future

import torch
from torch import nn

LARGEST = 16


class Encoder(nn.Module):
    def __init__(self, width=256, layers=4):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 100)

    def forward(self, pictures):
        return self.head(self.body(self.patch(pictures).flatten(2).mT).mean(1))


class Server(threading.Thread):
    def __init__(self, model, device, wait):
        super().__init__(daemon=True)
        self.model, self.device, self.wait = model, device, wait
        self.requests, self.sizes = queue.Queue(), []

    def ask(self, picture):
        answer = Future()
        self.requests.put((picture, answer))
        return answer

    def gather(self):
        """The next batch: whatever came until it is full or the first has waited long enough."""
        batch = [self.requests.get()]
        deadline = time.monotonic() + self.wait
        while len(batch) < LARGEST:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                batch.append(self.requests.get(timeout=left))
            except queue.Empty:
                break
        return batch

    @torch.inference_mode()
    def run(self):
        while True:
            batch = self.gather()
            pictures = torch.stack([picture for picture, _ in batch]).to(self.device)
            scores = self.model(pictures).softmax(1)
            best, index = scores.max(1)
            for (_, answer), score, label in zip(batch, best.tolist(), index.tolist(), strict=True):
                answer.set_result((label, score))
            self.sizes.append(len(batch))


def client(server, count, seed, pause, delays):
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    for _ in range(count):
        picture = torch.rand(3, 64, 64, generator=generator)
        asked = time.monotonic()
        server.ask(picture).result()
        delays.append(time.monotonic() - asked)
        if pause:
            time.sleep(rng.expovariate(1 / pause))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--few-clients", action="store_true", help="two clients that come back after a while"
    )
    args = parser.parse_args()
    torch.manual_seed(30)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    server = Server(Encoder().to(device).eval(), device, wait=0.1 if args.few_clients else 0.005)
    server.start()
    clients, total = (2, 320) if args.few_clients else (48, 3200)
    delays = []
    threads = [
        threading.Thread(
            target=client, args=(server, total // clients, n, 0.04 * args.few_clients, delays)
        )
        for n in range(clients)
    ]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, delays = time.monotonic() - begun, sorted(delays)
    print(
        f"{len(delays)} requests in {len(server.sizes)} batches, mean size {sum(server.sizes) / len(server.sizes):.1f}"
    )
    print(
        f"{len(delays) / seconds:.1f} requests/s, median {delays[len(delays) // 2] * 1e3:.0f} ms",
        end=", ",
    )
    print(f"99th percentile {delays[len(delays) * 99 // 100] * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
