"""Triton source of functions with which programs exchange tiles with other ranks.

The memory, and the table that says where it lies, are those of `libraries/symmetric.py`. Every
program waits for the program with its number on the other ranks. The device starts programs in the
order of their numbers, so the first one that waits anywhere waits for one that runs.
"""

from __future__ import annotations

from targets.cuda.libraries.symmetric import PROGRAMS, WORDS

RANK_FUNCTIONS: dict[str, str] = {
    "nanoseconds": '''
def nanoseconds():
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
''',
    "give_up": '''
def give_up(table):
    tl.store(tl.load(table + 2).to(tl.pointer_type(tl.int32)), 1)
    tl.inline_asm_elementwise(
        "fence.sys; trap; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
''',
    "received": '''
def received(inbox, number, table):
    word = tl.load(inbox, volatile=True)
    start = nanoseconds()
    while tl.max(((word >> 32).to(tl.int32) != number).to(tl.int32), axis=None) != 0:
        word = tl.load(inbox, volatile=True)
        if nanoseconds() - start > tl.load(table + 3):
            give_up(table)
    return word.to(tl.int32).to(tl.float32, bitcast=True)
''',
    "sum_of_ranks": f'''
def sum_of_ranks(x, place, table, COUNT: tl.constexpr, SIZE: tl.constexpr):
    # x: a tile in f32; place: the number of each of its SIZE elements
    program, own = tl.program_id(0), tl.load(table)
    numbers = tl.load(table + 1).to(tl.pointer_type(tl.int32))
    number = tl.load(numbers + program) + 1
    first = (number & 1) * (COUNT * {WORDS}) + program * SIZE
    word = (number.to(tl.int64) << 32) | (x.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)
    for rank in tl.static_range(COUNT):
        if rank != own:
            inbox = tl.load(table + 4 + rank).to(tl.pointer_type(tl.int64))
            tl.store(inbox + (first + own.to(tl.int32) * {WORDS}) + place, word)
    inbox = tl.load(table + 4 + own).to(tl.pointer_type(tl.int64)) + first
    total = x
    for rank in tl.static_range(COUNT):
        part = x
        if rank != own:
            part = received(inbox + rank * {WORDS} + place, number, table)
        total = part if rank == 0 else total + part
    tl.debug_barrier()  # all threads have read the number
    tl.store(numbers + program, number)
    if program == tl.num_programs(0) - 1:  # the next kernel may have more programs
        others = tl.arange(0, {PROGRAMS})
        tl.store(numbers + others, tl.zeros_like(others) + number, mask=others > program)
    return total
''',
}
