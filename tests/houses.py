"""A table of houses in a CSV file: numbers, categories, dates and gaps, with a price and a verdict to predict."""

import numpy as np

CITIES = ("Oslo", "Paris", "Rome")
HEAD = "id,area,rooms,built,city,garden,country,price,verdict"


def rows(count, seed=0):
    """Returns the cells of a number of rows.

    The price depends on area, rooms, city and garden, the verdict on the price alone. A tenth of the areas and of the
    cities are missing.
    """
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        area, rooms = round(random.uniform(30, 200), 1), int(random.integers(1, 8))
        city, garden = CITIES[random.integers(3)], bool(random.random() < 0.5)
        price = round(2 * area + 20 * rooms + 50 * CITIES.index(city) + 40 * garden + random.normal(0, 5), 2)
        verdict = "cheap" if price < 280 else "dear" if price > 400 else "fair"
        built = f"{random.integers(1950, 2020)}-{random.integers(1, 13):02}-01"
        gap, where = random.random(2)
        cells = ["" if gap < 0.1 else area, rooms, built, "" if where < 0.1 else city, str(garden).lower()]
        found.append([f"house {seed} {number}", *cells, "here", price, verdict])
    return found


def write(path, count=200, seed=0):
    """Writes a CSV file and returns its path."""
    lines = [HEAD, *(",".join(map(str, cells)) for cells in rows(count, seed))]
    path.write_text("\n".join(lines) + "\n")
    return path
