"""The batched transforms against torchvision's: equal for given parameters, equal in
distribution.
"""

from __future__ import annotations

import pytest
import torch
from torchvision.transforms.v2 import functional

from cifar_train.data import transforms
from cifar_train.data.transforms import (
    BatchParameters,
    BatchTransform,
    apply_parameters,
    draw_parameters,
)

TOLERANCE = 1e-5
"""Of pixels in 0..1; a step of a stored image is 390 times larger."""


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tensors here are small; several threads only wait for each other where other programs run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_images(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)


def by_torchvision(images: torch.Tensor, parameters: BatchParameters) -> torch.Tensor:
    """Image by image with torchvision's own functions."""
    adjust = (
        functional.adjust_brightness,
        functional.adjust_contrast,
        functional.adjust_saturation,
    )
    results = []
    for number, stored in enumerate(images):
        image = functional.to_dtype(stored, torch.float32, scale=True)
        if parameters.flip[number]:
            image = functional.horizontal_flip(image)
        left, top = parameters.corner[number].int().tolist()
        width, height = parameters.size[number].int().tolist()
        image = functional.resized_crop(image, top, left, height, width, [32, 32], antialias=False)
        for kind in parameters.order[number].tolist():
            image = adjust[kind](image, parameters.factors[number, kind].item())
        results.append(image)
    return torch.stack(results)


def drawn(count: int, seed: int = 1) -> BatchParameters:
    return draw_parameters(count, torch.Generator().manual_seed(seed))


# Equal for given parameters


def test_equals_torchvision_for_drawn_parameters():
    images, parameters = random_images(500), drawn(500)
    torch.testing.assert_close(
        apply_parameters(images, parameters),
        by_torchvision(images, parameters),
        rtol=0,
        atol=TOLERANCE,
    )


def test_black_and_white_stay_within_the_range():
    images = torch.cat([torch.zeros(500, 3, 32, 32), torch.full((500, 3, 32, 32), 255)]).to(
        torch.uint8
    )
    found = BatchTransform(55, 0)(images)
    assert found.dtype == torch.float32
    assert found.min() == 0
    assert 0.99 < found.max() <= 1


def test_autocast_does_not_change_it():
    images = random_images(20)
    expected = BatchTransform(55, 0)(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = BatchTransform(55, 0)(images)
    assert torch.equal(found, expected)
    assert not found.requires_grad


# Equal in distribution


def test_parameters_lie_where_torchvision_draws_them_and_reach_the_limits():
    parameters = drawn(60_000)
    area = parameters.size.prod(dim=1) / 32**2
    assert (area.min(), area.max()) == pytest.approx((0.85, 1), abs=0.04)  # sizes are whole pixels
    ends = parameters.corner + parameters.size
    assert (parameters.corner.min(), ends.max()) == (0, 32)
    assert (parameters.factors.min(), parameters.factors.max()) == pytest.approx(
        (0.8, 1.2), abs=1e-4
    )
    orders, counts = parameters.order.unique(dim=0, return_counts=True)
    assert len(orders) == 6
    # A sixth of 60,000 each, half of them mirrored, within five standard deviations.
    assert (counts - 10_000).abs().max() < 5 * 92
    assert abs(int(parameters.flip.sum()) - 30_000) < 5 * 123


@pytest.fixture(scope="module")
def transformed() -> tuple[torch.Tensor, torch.Tensor]:
    """Many versions of 8 images by torchvision and by us, [draws, 8, 3, 32, 32] each."""
    images = smooth_images(8)
    torch.manual_seed(7)
    transform = transforms.per_image_transform(training=True)
    theirs = torch.stack([torch.stack([transform(image) for image in images]) for _ in range(300)])
    ours = BatchTransform(8, 0)(images.repeat(1500, 1, 1, 1)).view(1500, 8, 3, 32, 32)
    return theirs, ours


def smooth_images(count: int) -> torch.Tensor:
    """Images with structure and some saturated pixels: noise alone would hide a shift of the
    crop.
    """
    generator = torch.Generator().manual_seed(9)
    coarse = torch.rand(count, 3, 5, 5, generator=generator) * 1.4 - 0.2
    return (
        torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 1) * 255
    ).to(torch.uint8)


def test_pixels_have_the_same_mean_and_variance(transformed):
    theirs, ours = transformed
    error = (theirs.var(dim=0) / len(theirs) + ours.var(dim=0) / len(ours)).sqrt()
    deviations = (theirs.mean(dim=0) - ours.mean(dim=0)) / error
    # 24,576 pixels: the largest of as many normal deviations is near 4.2.
    assert deviations.abs().max() < 6
    torch.testing.assert_close(theirs.var(dim=0).mean(), ours.var(dim=0).mean(), rtol=0.03, atol=0)


# Reproducible


def test_random_numbers_follow_seed_rank_and_batch():
    images = random_images(40)
    first = BatchTransform(55, 0)
    one, two = first(images), first(images)
    assert not torch.equal(one, two)
    again = BatchTransform(55, 0)
    assert torch.equal(again(images), one)
    assert torch.equal(again(images), two)
    for seed, rank in ((56, 0), (55, 1)):
        assert not torch.equal(BatchTransform(seed, rank)(images), one)
    # Seed and rank do not add up to the same numbers.
    assert not torch.equal(BatchTransform(56, 0)(images), BatchTransform(55, 1)(images))


def test_parameters_drawn_ahead_are_never_used_twice(monkeypatch):
    monkeypatch.setattr(transforms, "DRAWN_AHEAD", 64)
    transform = BatchTransform(55, 0)
    one_image = random_images(1)
    found = torch.cat(
        [transform(one_image.expand(size, -1, -1, -1)) for size in (40, 24, 1, 60, 100, 64, 3)]
    )
    assert len(found) == 292
    assert len(torch.unique(found.flatten(1), dim=0)) == 292


@pytest.mark.parametrize("training", [False, True])
def test_per_image_transform_takes_stored_images(training):
    image = random_images(1)[0]
    found = transforms.per_image_transform(training)(image)
    assert found.shape == (3, 32, 32)
    assert found.dtype == torch.float32
    assert torch.allclose(torch.as_tensor(found), image / 255) != training
