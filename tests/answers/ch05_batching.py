"""Right and wrong answers to the exercises of chapter 5."""

from . import Wrong

ALTERNATIVES = {
    "5.1": {
        "the limit from times, the batch by search": """
def gain(t0, c, b):
    return b * (t0 + c) / (t0 + c * b)

def max_gain(t0, c):
    return (t0 + c) / c

def batch_for(t0, c, fraction):
    if fraction <= 0 or fraction >= 1:
        raise ValueError("fraction")
    b = 1
    while gain(t0, c, b) < fraction * max_gain(t0, c):
        b += 1
    return b
""",
        "bisection on whole numbers": """
def max_gain(t0, c):
    return (t0 + c) * (1 / c)

def batch_for(t0, c, fraction):
    if not (0.0 < fraction < 1.0):
        raise ValueError(f"bad fraction {fraction}")
    enough = lambda b: b * c >= fraction * (t0 + c * b)
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
""",
        "the odds of the fraction, with numpy": """
def max_gain(t0, c):
    return np.divide(t0, c) + 1

def batch_for(t0, c, fraction):
    assert_ok = 0 < fraction and fraction < 1
    if not assert_ok:
        raise ValueError
    odds = fraction / (1 - fraction)
    return np.maximum(np.ceil(odds * t0 / c), 1).astype(np.int64)
""",
    },
    "5.2": {
        "item by item": """
def masked_pool(x, lengths):
    means, maxima, lasts = [], [], []
    for i, n in enumerate(lengths.tolist()):
        if n == 0:
            raise ValueError(f"length 0 at index {i}")
        item = x[i, :n]
        means.append(item.mean(dim=0))
        maxima.append(item.max(dim=0).values)
        lasts.append(item[-1])
    return torch.stack(means), torch.stack(maxima), torch.stack(lasts)
""",
        "masked_fill twice, and gather": """
def masked_pool(x, lengths):
    B, T, D = x.shape
    for i in range(B):
        if lengths[i] <= 0:
            raise ValueError(f"item {i} is empty")
    pad = torch.arange(T).unsqueeze(0).ge(lengths.unsqueeze(1)).unsqueeze(-1)
    total = x.masked_fill(pad, 0.0).sum(dim=1)
    mean = total / lengths.clamp(min=1).unsqueeze(1)
    top, _ = x.masked_fill(pad, float("-inf")).max(dim=1)
    index = (lengths - 1).view(B, 1, 1).expand(B, 1, D)
    return mean, top, x.gather(1, index).squeeze(1)
""",
        "nanmean, and the lowest finite number": """
def masked_pool(x, lengths):
    if bool((lengths == 0).any()):
        raise ValueError("empty items: " + str(torch.where(lengths == 0)[0].tolist()))
    keep = (torch.arange(x.size(1)).repeat(len(x), 1) < lengths.view(-1, 1)).unsqueeze(2).expand_as(x)
    mean = torch.where(keep, x, torch.full_like(x, float("nan"))).nanmean(dim=1)
    x = x.clone()
    x[~keep] = torch.finfo(x.dtype).min
    last = torch.stack([row[n - 1] for row, n in zip(x, lengths)])
    return [mean, torch.amax(x, 1), last]
""",
        "packed by pack_padded_sequence": """
def masked_pool(x, lengths):
    for i, n in enumerate(lengths.tolist()):
        if not n:
            raise ValueError(f"{i}")
    items = [row[:n] for row, n in zip(x, lengths.tolist())]
    nested = nn.utils.rnn.pad_sequence(items, batch_first=True, padding_value=-math.inf)
    mean = torch.stack([item.sum(0) / len(item) for item in items])
    return mean, nested.amax(1), torch.cat([item[-1:] for item in items])
""",
    },
    "5.3": {
        "argsort and split, scattered back": """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort(descending=True)
    return [part.tolist() for part in order.split(batch_size)]

def restore(outputs, batches):
    rows = torch.cat(outputs)
    result = torch.empty_like(rows)
    result[sum(batches, [])] = rows
    return result
""",
        "sorted pairs, batches shuffled, rows picked one at a time": """
def bucket_batches(lengths, batch_size):
    import random
    pairs = sorted((n, i) for i, n in enumerate(lengths))
    batches = []
    while pairs:
        batches.append([i for _, i in pairs[:batch_size]])
        pairs = pairs[batch_size:]
    random.Random(0).shuffle(batches)
    return batches

def restore(outputs, batches):
    rows = {}
    for out, batch in zip(outputs, batches):
        for row, index in zip(out, batch):
            rows[index] = row
    return torch.stack([rows[i] for i in range(len(rows))])
""",
        "numpy, a short batch first": """
def bucket_batches(lengths, batch_size):
    order = list(np.argsort(lengths, kind="stable"))
    head = len(order) % batch_size
    first = [order[:head]] if head else []
    return first + [order[k:k + batch_size] for k in range(head, len(order), batch_size)]

def restore(outputs, batches):
    order = [i for b in batches for i in b]
    inverse = [0] * len(order)
    for place, i in enumerate(order):
        inverse[i] = place
    return torch.cat(list(outputs), dim=0)[torch.tensor(inverse)]
""",
    },
    "5.4": {
        "retries one by one, tickets are objects": """
class MicroBatcher:
    def __init__(self, predict, max_batch):
        self._predict = predict
        self._max = max_batch
        self._waiting = []
        self._answers = {}

    def submit(self, item):
        ticket = object()
        self._waiting.append((ticket, item))
        return ticket

    def step(self):
        batch, self._waiting = self._waiting[:self._max], self._waiting[self._max:]
        if not batch:
            return
        tickets, items = zip(*batch)
        try:
            for t, a in zip(tickets, self._predict(list(items))):
                self._answers[t] = (True, a)
        except Exception:
            for t, item in batch:
                try:
                    self._answers[t] = (True, self._predict([item])[0])
                except Exception as e:
                    self._answers[t] = (False, e)

    def result(self, ticket):
        if ticket not in self._answers:
            raise KeyError(ticket)
        good, value = self._answers.pop(ticket)
        if good:
            return value
        raise value
""",
        "a ticket is a growing list of slots; suspects are served alone in later steps": """
class MicroBatcher:
    EMPTY = object()

    def __init__(self, predict, max_batch):
        self.predict, self.max_batch = predict, max_batch
        self.queue, self.suspects, self.slots = [], [], []

    def submit(self, item):
        self.slots.append(self.EMPTY)
        self.queue.append((len(self.slots) - 1, item))
        return len(self.slots) - 1

    def step(self):
        if self.suspects:
            batch = [self.suspects.pop(0)]
        else:
            batch = self.queue[:self.max_batch]
            del self.queue[:self.max_batch]
        if len(batch) == 0:
            return None
        try:
            answers = self.predict([item for _, item in batch])
            results = [(lambda a=a: a) for a in answers]
        except Exception as error:
            if len(batch) > 1:
                self.suspects.extend(batch)
                return
            def fail(error=error):
                raise error
            results = [fail]
        for (slot, _), result in zip(batch, results):
            self.slots[slot] = result

    def result(self, ticket):
        found = self.slots[ticket]
        if found is self.EMPTY:
            raise KeyError(f"no answer for {ticket}")
        self.slots[ticket] = self.EMPTY
        return found()
""",
        "futures": """
from concurrent.futures import Future

class MicroBatcher:
    def __init__(self, predict, max_batch):
        self.predict, self.max_batch, self.pending = predict, max_batch, deque()

    def submit(self, item):
        ticket = {"future": Future()}
        self.pending.append((ticket["future"], item))
        return ticket

    def step(self):
        batch = [self.pending.popleft() for _ in range(min(len(self.pending), self.max_batch))]
        groups = [batch] if batch else []
        while groups:
            group = groups.pop()
            try:
                answers = self.predict([item for _, item in group])
            except Exception as error:
                if len(group) == 1:
                    group[0][0].set_exception(error)
                else:
                    groups += [[one] for one in group]
            else:
                for (future, _), answer in zip(group, answers):
                    future.set_result(answer)

    def result(self, ticket):
        if "future" not in ticket or not ticket["future"].done():
            raise KeyError("no result")
        return ticket.pop("future").result()
""",
    },
    "5.5": {
        "stacked by hand, x as an argument": """
from torch.func import functional_call, vmap

def predict_ensemble(models, x):
    first = models[0]
    state = {}
    for name in first.state_dict():
        state[name] = torch.stack([m.state_dict()[name] for m in models])
    return vmap(lambda s, x: functional_call(first, s, (x,)), in_dims=(0, None))(state, x)
""",
        "a copy on the meta device as the skeleton, under no_grad": """
from torch.func import functional_call, stack_module_state, vmap

@torch.no_grad()
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")

    def call(params, buffers, x):
        return functional_call(skeleton, (params, buffers), (x,))

    return vmap(call, in_dims=(0, 0, None), randomness="error")(params, buffers, x)
""",
        "copies of all models, x expanded": """
def predict_ensemble(models, x):
    models = copy.deepcopy(list(models))
    state = torch.func.stack_module_state(models)
    run = lambda p, b, x: torch.func.functional_call(models[0], {**p, **b}, (x,))
    return torch.vmap(run)(*state, x.expand(len(models), *x.shape))
""",
        "cloned states, and models on the last dimension first": """
def predict_ensemble(models, x):
    names = [n for n, _ in models[0].named_parameters()] + [n for n, _ in models[0].named_buffers()]
    stacks = []
    for n in names:
        stacks.append(torch.stack([dict([*m.named_parameters(), *m.named_buffers()])[n].detach().clone()
                                   for m in models], dim=-1))
    def f(*tensors):
        return torch.func.functional_call(models[0], dict(zip(names, tensors)), x)
    return torch.vmap(f, in_dims=-1, out_dims=1)(*stacks).transpose(0, 1)
""",
    },
}

POOL_HEAD = """
def masked_pool(x, lengths):
    for i, n in enumerate(lengths.tolist()):
        if n == 0:
            raise ValueError(f"item {i} has length 0")
    T = x.shape[1]
    valid = (torch.arange(T)[None] < lengths[:, None])[..., None]
    mean = x.masked_fill(~valid, 0).sum(1) / lengths[:, None]
    top = x.masked_fill(~valid, -math.inf).amax(1)
    last = x[torch.arange(len(x)), lengths - 1]
"""

BATCHER_HEAD = """
class MicroBatcher:
    def __init__(self, predict, max_batch):
        self.predict, self.max_batch = predict, max_batch
        self.queue, self.done, self.count = [], {}, 0

    def submit(self, item):
        self.count += 1
        self.queue.append((self.count, item))
        return self.count

    def result(self, ticket):
        good, value = self.done.pop(ticket)
        if good:
            return value
        raise value

    def take(self):
        batch, self.queue = self.queue[:self.max_batch], self.queue[self.max_batch:]
        return batch

    def alone(self, ticket, item):
        try:
            self.done[ticket] = (True, self.predict([item])[0])
        except Exception as error:
            self.done[ticket] = (False, error)

    def step(self):
        batch = self.take()
        if batch:
            try:
                answers = self.predict([i for _, i in batch])
                self.done.update({t: (True, a) for (t, _), a in zip(batch, answers)})
            except Exception:
                for ticket, item in batch:
                    self.alone(ticket, item)
"""

GAIN_BATCH = """
def batch_for(t0, c, fraction):
    if not 0 < fraction < 1:
        raise ValueError("fraction")
    return max(1, math.ceil(fraction * t0 / (c * (1 - fraction))))
"""

GAIN_LIMIT = """
def max_gain(t0, c):
    return 1 + t0 / c
"""

STACK_STATE = """
from torch.func import functional_call, stack_module_state, vmap
"""

WRONG = {
    "5.1": [
        Wrong(
            "linear-gain",
            GAIN_BATCH + "def max_gain(t0, c):\n    return math.inf\n",
            "article A, claim 5.1",
        ),
        Wrong(
            "linear-gain",
            GAIN_LIMIT
            + """
def batch_for(t0, c, fraction):
    if not 0 < fraction < 1:
        raise ValueError("fraction")
    return math.ceil(fraction * max_gain(t0, c))
""",
            "article A, claim 5.1",
        ),
        Wrong("ratio-on-its-head", GAIN_BATCH + "def max_gain(t0, c):\n    return 1 + c / t0\n"),
        Wrong("forgets-own-item", GAIN_BATCH + "def max_gain(t0, c):\n    return t0 / c\n"),
        Wrong("throughput-not-gain", GAIN_BATCH + "def max_gain(t0, c):\n    return 1 / c\n"),
        Wrong(
            "rounded-down",
            GAIN_LIMIT
            + """
def batch_for(t0, c, fraction):
    if not 0 < fraction < 1:
        raise ValueError("fraction")
    return max(1, int(fraction * t0 / (c * (1 - fraction))))
""",
        ),
        Wrong(
            "rounded-down",
            GAIN_LIMIT
            + """
def batch_for(t0, c, fraction):
    if not 0 < fraction < 1:
        raise ValueError("fraction")
    return max(1, round(fraction * t0 / (c * (1 - fraction))))
""",
        ),
        Wrong(
            "one-too-many",
            GAIN_LIMIT
            + """
def batch_for(t0, c, fraction):
    if not 0 < fraction < 1:
        raise ValueError("fraction")
    return math.floor(fraction * t0 / (c * (1 - fraction))) + 1
""",
        ),
        Wrong(
            "no-item",
            GAIN_LIMIT
            + """
def batch_for(t0, c, fraction):
    if not 0 < fraction < 1:
        raise ValueError("fraction")
    return math.ceil(fraction * t0 / (c * (1 - fraction)))
""",
        ),
        Wrong(
            "fraction-not-checked",
            GAIN_LIMIT
            + """
def batch_for(t0, c, fraction):
    return max(1, math.ceil(fraction * t0 / (c * (1 - fraction)))) if fraction != 1 else 0
""",
        ),
        Wrong(
            "fraction-not-checked",
            GAIN_LIMIT
            + """
def batch_for(t0, c, fraction):
    assert 0 < fraction < 1
    return max(1, math.ceil(fraction * t0 / (c * (1 - fraction))))
""",
        ),
    ],
    "5.2": [
        Wrong(
            "zero-length-not-told",
            """
def masked_pool(x, lengths):
    if (lengths < 1).any():
        raise ValueError("every length must be 1 or 2 or more")
    valid = (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
    mean = x.masked_fill(~valid, 0).sum(1) / lengths[:, None]
    return mean, x.masked_fill(~valid, -math.inf).amax(1), x[torch.arange(len(x)), lengths - 1]
""",
        ),
        Wrong(
            "mean-counts-padding",
            POOL_HEAD + "    return x.mean(1), top, last\n",
            "turboderp/exllama#101, triton-inference-server/fastertransformer_backend#53",
        ),
        Wrong(
            "one-item-skips-mask",
            POOL_HEAD
            + """
    if len(x) == 1:
        return x.mean(1), x.amax(1), x[:, -1]
    return mean, top, last
""",
            "huggingface/transformers#46773",
        ),
        Wrong("last-is-padding", POOL_HEAD + "    return mean, top, x[:, -1]\n", "huggingface/transformers#30378"),
        Wrong(
            "mean-divides-by-longest",
            POOL_HEAD + "    return x.masked_fill(~valid, 0).mean(1), top, last\n",
        ),
        Wrong("padding-taken-for-zero", POOL_HEAD + "    return x.sum(1) / lengths[:, None], top, last\n"),
        Wrong(
            "padding-taken-for-zero",
            POOL_HEAD + "    return x.nan_to_num(0.0).sum(1) / lengths[:, None], top, last\n",
        ),
        Wrong("max-sees-padding", POOL_HEAD + "    return mean, x.amax(1), last\n"),
        Wrong("max-filled-with-zero", POOL_HEAD + "    return mean, x.masked_fill(~valid, 0).amax(1), last\n"),
        Wrong("max-filled-with-zero", POOL_HEAD + "    return mean, (x * valid).amax(1), last\n"),
        Wrong("last-off-by-one", POOL_HEAD + "    return mean, top, x[torch.arange(len(x)), lengths]\n"),
        Wrong(
            "last-off-by-one",
            POOL_HEAD + "    return mean, top, x[torch.arange(len(x)), lengths.clamp(max=T - 1)]\n",
        ),
        Wrong("nan-times-zero", POOL_HEAD + "    return (x * valid).sum(1) / lengths[:, None], top, last\n"),
        Wrong(
            "nan-times-zero",
            POOL_HEAD + "    return mean, (x - 1e30 * (~valid).float()).amax(1), last\n",
        ),
        Wrong("every-pair", POOL_HEAD + "    return mean, top, x[:, lengths - 1]\n"),
        Wrong(
            "squeezed-away",
            POOL_HEAD + "    return mean.squeeze(), top.squeeze(), last.squeeze()\n",
        ),
        Wrong(
            "zero-length-not-told",
            """
def masked_pool(x, lengths):
    valid = (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]
    mean = x.masked_fill(~valid, 0).sum(1) / lengths[:, None]
    return mean, x.masked_fill(~valid, -math.inf).amax(1), x[torch.arange(len(x)), lengths - 1]
""",
        ),
        Wrong(
            "zero-length-not-told",
            """
def masked_pool(x, lengths):
    if (lengths == 0).any():
        raise ValueError("an item is empty")
    valid = (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]
    mean = x.masked_fill(~valid, 0).sum(1) / lengths[:, None]
    return mean, x.masked_fill(~valid, -math.inf).amax(1), x[torch.arange(len(x)), lengths - 1]
""",
        ),
    ],
    "5.3": [
        Wrong(
            "order-applied-twice",
            """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort().tolist()
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)[[i for b in batches for i in b]]
""",
            "the classic: the permutation instead of its inverse",
        ),
        Wrong(
            "order-not-restored",
            """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort().tolist()
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)
""",
        ),
        Wrong(
            "lengths-not-indices",
            """
def bucket_batches(lengths, batch_size):
    order = sorted(lengths)
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "index-lost",
            """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort().tolist()
    return [order[i:i + batch_size] for i in range(0, len(order) - batch_size + 1, batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "index-lost",
            """
def bucket_batches(lengths, batch_size):
    by_length = {n: i for i, n in enumerate(lengths)}
    order = [by_length[n] for n in sorted(by_length)]
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "index-twice",
            """
def bucket_batches(lengths, batch_size):
    order = [lengths.index(n) for n in sorted(lengths)]
    missing = set(range(len(lengths))) - set(order)
    order += sorted(missing)
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)][:math.ceil(len(order) / batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "batch-too-large",
            """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort().tolist()
    count = max(1, len(order) // batch_size)
    return [part.tolist() for part in np.array_split(order, count)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "many-short-batches",
            """
def bucket_batches(lengths, batch_size):
    buckets = defaultdict(list)
    for i, n in enumerate(lengths):
        buckets[n // 4].append(i)
    return [b[k:k + batch_size] for b in buckets.values() for k in range(0, len(b), batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "arrival-order",
            """
def bucket_batches(lengths, batch_size):
    order = list(range(len(lengths)))
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "lengths-still-mixed",
            """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort().tolist()
    count = math.ceil(len(order) / batch_size)
    return [order[k::count] for k in range(count)]

def restore(outputs, batches):
    return torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
""",
        ),
        Wrong(
            "only-one-shape",
            """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort().tolist()
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

def restore(outputs, batches):
    result = torch.zeros(sum(len(b) for b in batches), outputs[0].shape[1])
    for out, batch in zip(outputs, batches):
        result[batch] = out
    return result
""",
        ),
        Wrong(
            "only-one-shape",
            """
def bucket_batches(lengths, batch_size):
    order = torch.tensor(lengths).argsort().tolist()
    return [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

def restore(outputs, batches):
    result = torch.zeros(sum(len(b) for b in batches), *outputs[0].shape[1:])
    for out, batch in zip(outputs, batches):
        for row, i in zip(out, batch):
            result[i] = row
    return result
""",
        ),
    ],
    "5.4": [
        Wrong(
            "answer-raised",
            """
class MicroBatcher:
    def __init__(self, predict, max_batch):
        self.predict, self.max_batch, self.queue, self.done, self.count = predict, max_batch, [], {}, 0

    def submit(self, item):
        self.count += 1
        self.queue.append((self.count, item))
        return self.count

    def step(self):
        batch, self.queue = self.queue[: self.max_batch], self.queue[self.max_batch :]
        if batch:
            self.serve(batch)

    def serve(self, batch):
        try:
            answers = self.predict([item for _, item in batch])
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    self.serve([one])
                return
            answers = [error]
        for (ticket, _), answer in zip(batch, answers):
            self.done[ticket] = answer

    def result(self, ticket):
        answer = self.done.pop(ticket)
        if isinstance(answer, Exception):
            raise answer
        return answer
""",
        ),
        Wrong(
            "one-bad-fails-all",
            BATCHER_HEAD
            + """
    def step(self):
        batch = self.take()
        if batch:
            try:
                answers = [(True, a) for a in self.predict([i for _, i in batch])]
            except Exception as error:
                answers = [(False, error)] * len(batch)
            self.done.update({t: a for (t, _), a in zip(batch, answers)})
""",
            "facts: one bad request must not fail its neighbours",
        ),
        Wrong(
            "step-raises",
            BATCHER_HEAD
            + """
    def step(self):
        batch = self.take()
        if batch:
            answers = self.predict([i for _, i in batch])
            self.done.update({t: (True, a) for (t, _), a in zip(batch, answers)})
""",
        ),
        Wrong(
            "waits-for-full-batch",
            BATCHER_HEAD
            + """
    def take(self):
        if len(self.queue) < self.max_batch:
            return []
        batch, self.queue = self.queue[:self.max_batch], self.queue[self.max_batch:]
        return batch
""",
        ),
        Wrong(
            "drains-the-queue",
            BATCHER_HEAD
            + """
    def step(self):
        while self.queue:
            batch = self.take()
            for (t, _), a in zip(batch, self.predict([i for _, i in batch])):
                self.done[t] = (True, a)
""",
        ),
        Wrong(
            "one-at-a-time",
            BATCHER_HEAD
            + """
    def step(self):
        for ticket, item in self.take():
            self.alone(ticket, item)
""",
        ),
        Wrong(
            "one-at-a-time",
            BATCHER_HEAD
            + """
    def step(self):
        if self.queue:
            self.alone(*self.queue.pop(0))
""",
        ),
        Wrong(
            "batch-too-large",
            BATCHER_HEAD
            + """
    def take(self):
        batch, self.queue = self.queue, []
        return batch
""",
        ),
        Wrong(
            "out-of-order",
            BATCHER_HEAD
            + """
    def take(self):
        return [self.queue.pop() for _ in range(min(self.max_batch, len(self.queue)))]
""",
        ),
        Wrong(
            "answers-mixed-up",
            BATCHER_HEAD
            + """
    def step(self):
        batch = self.take()
        if batch:
            answers = self.predict([i for _, i in batch])
            self.done.update({t: (True, a) for (t, _), a in zip(batch, reversed(answers))})
""",
        ),
        Wrong(
            "calls-predict-with-nothing",
            BATCHER_HEAD
            + """
    def step(self):
        batch = self.take()
        try:
            answers = self.predict([i for _, i in batch])
            self.done.update({t: (True, a) for (t, _), a in zip(batch, answers)})
        except Exception:
            for ticket, item in batch:
                self.alone(ticket, item)
""",
        ),
        Wrong(
            "ticket-not-unique",
            BATCHER_HEAD
            + """
    def submit(self, item):
        self.queue.append((len(self.queue), item))
        return len(self.queue) - 1
""",
        ),
        Wrong(
            "ticket-not-unique",
            BATCHER_HEAD
            + """
    def submit(self, item):
        self.queue.append((id(item), item))
        return id(item)
""",
        ),
        Wrong(
            "answer-too-early",
            BATCHER_HEAD
            + """
    def result(self, ticket):
        good, value = self.done.pop(ticket, (True, None))
        if good:
            return value
        raise value
""",
        ),
        Wrong(
            "answer-kept",
            BATCHER_HEAD
            + """
    def result(self, ticket):
        good, value = self.done[ticket]
        if good:
            return value
        raise value
""",
        ),
        Wrong(
            "falsy-answer-lost",
            BATCHER_HEAD
            + """
    def result(self, ticket):
        good, value = self.done.pop(ticket)
        if not value:
            raise KeyError(ticket)
        if good:
            return value
        raise value
""",
        ),
        Wrong(
            "neighbours-left-waiting",
            BATCHER_HEAD
            + """
    def step(self):
        batch = self.take()
        if batch:
            try:
                answers = self.predict([i for _, i in batch])
                self.done.update({t: (True, a) for (t, _), a in zip(batch, answers)})
            except Exception:
                self.queue = batch + self.queue
""",
        ),
        Wrong(
            "neighbours-left-waiting",
            BATCHER_HEAD
            + """
    def step(self):
        batch = self.take()
        if batch:
            try:
                answers = self.predict([i for _, i in batch])
                self.done.update({t: (True, a) for (t, _), a in zip(batch, answers)})
            except Exception as error:
                print("batch failed", error)
""",
        ),
        Wrong(
            "error-lost",
            BATCHER_HEAD
            + """
    def alone(self, ticket, item):
        try:
            self.done[ticket] = (True, self.predict([item])[0])
        except Exception as error:
            print(error)
""",
        ),
        Wrong(
            "error-lost",
            BATCHER_HEAD
            + """
    def alone(self, ticket, item):
        try:
            self.done[ticket] = (True, self.predict([item])[0])
        except Exception as error:
            self.done[ticket] = (False, RuntimeError("prediction failed"))
""",
        ),
        Wrong(
            "error-returned",
            BATCHER_HEAD
            + """
    def result(self, ticket):
        return self.done.pop(ticket)[1]
""",
        ),
        Wrong(
            "someone-elses-error",
            BATCHER_HEAD
            + """
    def step(self):
        batch = self.take()
        if batch:
            try:
                answers = self.predict([i for _, i in batch])
                self.done.update({t: (True, a) for (t, _), a in zip(batch, answers)})
            except Exception as error:
                for ticket, item in batch:
                    try:
                        self.done[ticket] = (True, self.predict([item])[0])
                    except Exception:
                        self.done[ticket] = (False, error)
""",
        ),
    ],
    "5.5": [
        Wrong(
            "loops",
            """
def predict_ensemble(models, x):
    return torch.stack([model(x) for model in models])
""",
        ),
        Wrong(
            "loops",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    pick = lambda state, i: {name: tensor[i] for name, tensor in state.items()}
    return torch.stack([functional_call(models[0], (pick(params, i), pick(buffers, i)), (x,))
                        for i in range(len(models))])
""",
        ),
        Wrong(
            "loops",
            """
from concurrent.futures import ThreadPoolExecutor

def predict_ensemble(models, x):
    with ThreadPoolExecutor(2) as pool:
        return torch.stack(list(pool.map(lambda model: model(x), models)))
""",
        ),
        Wrong(
            "buffers-of-the-first",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, _ = stack_module_state(models)
    return vmap(lambda p: functional_call(models[0], p, (x,)))(params)
""",
        ),
        Wrong(
            "one-model-for-all",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    params = {k: v.mean(0) for k, v in params.items()}
    buffers = {k: v.float().mean(0) for k, v in buffers.items()}
    out = functional_call(models[0], (params, buffers), (x,))
    return out.expand(len(models), *out.shape)
""",
        ),
        Wrong(
            "one-model-for-all",
            """
def predict_ensemble(models, x):
    return torch.stack([models[0](x)] * len(models))
""",
        ),
        Wrong(
            "averaged",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    return vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(params, buffers).mean(0)
""",
        ),
        Wrong(
            "models-not-first",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    return vmap(lambda p, b: functional_call(models[0], (p, b), (x,)), out_dims=1)(params, buffers)
""",
        ),
        Wrong(
            "maps-over-x",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    return vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)))(params, buffers, x)
""",
        ),
        Wrong(
            "requires-grad-changed",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    for model in models:
        model.requires_grad_(False)
    params, buffers = stack_module_state(models)
    return vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(params, buffers)
""",
        ),
        Wrong(
            "parameters-replaced",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    out = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(params, buffers)
    for i, model in enumerate(models):
        for name, p in list(model.named_parameters()):
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, nn.Parameter(params[name][i].detach(), p.requires_grad))
    return out
""",
        ),
        Wrong(
            "state-changed",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    out = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(params, buffers)
    for model in models:
        model.load_state_dict(models[-1].state_dict())
    return out
""",
        ),
        Wrong(
            "mode-changed",
            STACK_STATE
            + """
def predict_ensemble(models, x):
    params, buffers = stack_module_state(models)
    out = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(params, buffers)
    for model in models:
        model.train()
    return out
""",
        ),
    ],
}
