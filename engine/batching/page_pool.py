"""Which pages of a K/V pool are held: accounting in plain Python, without tensors.

A pool is cut into pages of equal size. A sequence gets all its pages at admission, so that it
never runs out while it is decoded, and returns them at its end.
"""

from __future__ import annotations


class PagePool:
    """The free and the held pages of one pool.

    Pages are handed out lowest first and in one run where there is one, so that a backend can
    read a sequence as a slice, and memory that was never needed is never touched.
    """

    def __init__(self, num_pages: int, page_size: int, in_runs: bool = True) -> None:
        """Begin with all pages free.

        Args:
            in_runs: False hands out any free pages: a device whose kernels follow
                page tables gains nothing by a run, and finding one takes time.
        """
        assert num_pages > 0 and page_size > 0, (num_pages, page_size)
        self.num_pages = num_pages
        self.page_size = page_size  # positions in a page
        self._is_free = [True] * num_pages
        self._num_free = num_pages
        # with in_runs, None; else the free pages, the next one last
        self._stack = None if in_runs else list(reversed(range(num_pages)))

    @property
    def num_free(self) -> int:
        return self._num_free

    def count_pages(self, num_positions: int) -> int:
        """Count the pages that hold so many positions."""
        return -(-num_positions // self.page_size)

    def allocate(self, num_positions: int) -> tuple[int, ...] | None:
        """Allocate pages for so many positions, ascending; None if there are not enough."""
        count = self.count_pages(num_positions)
        if count > self._num_free:
            return None
        if self._stack is not None:
            pages = tuple(sorted(self._stack.pop() for _ in range(count)))
        else:
            pages = self._find_run(count) or self._find_any(count)
        for page in pages:
            self._is_free[page] = False
        self._num_free -= count
        return pages

    def free(self, pages: tuple[int, ...]) -> None:
        """Free pages. Each must be held."""
        for page in pages:
            assert not self._is_free[page], f"page {page} is freed twice"
            self._is_free[page] = True
        self._num_free += len(pages)
        if self._stack is not None:
            self._stack += reversed(pages)

    def _find_run(self, count: int) -> tuple[int, ...] | None:
        length = 0
        for page, is_free in enumerate(self._is_free):
            length = length + 1 if is_free else 0
            if length == count:
                return tuple(range(page - count + 1, page + 1))
        return None

    def _find_any(self, count: int) -> tuple[int, ...]:
        free = [page for page, is_free in enumerate(self._is_free) if is_free]
        return tuple(free[:count])
