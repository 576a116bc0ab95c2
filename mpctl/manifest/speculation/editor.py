"""Cuts in the text of a manifest: list items and shell words replaced, removed and added, every other byte kept.

Invariants: an added block-list item is a line of its own (its line break is the one before it), so removing it is the
exact opposite; a list that existed only for added items disappears with the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from mpctl.errors import InputError
from mpctl.manifest.engine.engine_command import is_flag
from mpctl.manifest.engine.locate import VARIABLE, ArgumentToken, Engine, is_all_positional
from mpctl.manifest.speculation.additional import add_variable, remove_variable
from mpctl.manifest.text import list_items as listing
from mpctl.manifest.text.scalar import Piece, escape, pieces, plain_safe, spell
from mpctl.manifest.text.shell_words import ShellWord, quote
from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import Alias, Document, Scalar, Sequence, resolve

_SEPARATOR = re.compile(r"(?:[ \t]|\\\n)+")


@dataclass
class Editor:
    """Collects the cuts of one change to ``text``; :meth:`result` applies them."""

    text: str
    document: Document
    engine: Engine
    cuts: list[listing.Cut] = field(default_factory=list)
    removed: list[ArgumentToken] = field(default_factory=list)

    def result(self) -> str:
        self._remove_all()
        position, parts = 0, []
        for cut in sorted(self.cuts, key=lambda cut: (cut.start, cut.end)):
            if cut.start < position:
                raise self.engine.home.error(
                    "two edits of this list overlap",
                    hint="write every argument of the list on a line of its own",
                )
            self._only_here(cut)
            parts += [self.text[position : cut.start], cut.text]
            position = cut.end
        return "".join(parts) + self.text[position:]

    def rewrite(
        self, token: ArgumentToken, text: str, *, keep: int = 0, like: ArgumentToken | None = None
    ) -> None:
        """Make the word say ``text``; its first ``keep`` characters are already right and stay as they are.

        ``like``: the word beside it whose quoting it follows when its own is only there for need.
        """
        if text == token.text:
            return
        if token.word is not None:
            self._rewrite_word(token, token.word, text, keep)
            return
        node = self._direct(token.item)
        whole = pieces(self.text, token.item)
        if not whole:
            raise token.item.error("the value is empty", hint="write the value in quotes")
        start = whole[keep].start if keep < len(whole) else node.end
        body = text[keep:]
        if node.style == "" and not _stays_plain(node, text, keep):
            start, body = whole[0].start, spell(text, "", flow=node.flow)
        elif (
            node.style == "'"
            and keep == 0
            and like is not None
            and like.word is None
            and like.item.scalar().style == ""
        ):
            self.cut(node.start, node.end, spell(text, "", flow=node.flow))
            return
        else:
            body = escape(body, node.style)
        end = _last(whole, node)
        self.cut(start, max(end, start), body)

    def _rewrite_word(self, token: ArgumentToken, word: ShellWord, text: str, keep: int) -> None:
        script = token.item.text()
        raw = script[word.start : word.end]
        if keep == 0 or raw[0] in "'\"":
            start, new = word.start, _requote(text, raw[0], token.text)
        else:
            start = word.ends[keep - 1]
            new = _requote(text[keep:], script[start : start + 1], token.text[keep:])
        self._splice(token.item, start, word.end, new)

    def _splice(self, item: View, start: int, end: int, new: str) -> None:
        """Replace ``start:end`` of the value of ``item``; the text is escaped as its scalar needs it."""
        node = self._direct(item)
        if node.style == "" and node.flow and re.search(r"[\[\]{},]", new):
            raise item.error(
                "this unquoted script cannot hold the setting",
                hint="quote the script in the manifest",
            )
        whole = pieces(self.text, item)
        position = whole[start - 1].end if start == end else whole[start].start
        self.cut(
            position, position if start == end else whole[end - 1].end, escape(new, node.style)
        )

    def remove(self, tokens: Seq[ArgumentToken]) -> None:
        self.removed += tokens

    def _remove_all(self) -> None:
        lists: dict[int, tuple[View, set[int]]] = {}
        for token in self.removed:
            if token.word is not None and not self._goes_whole(token):
                self._remove_word(token, token.word)
            elif self.engine.evaluated is not None and token.item == self.engine.evaluated.value:
                variable = remove_variable(self.text, self.engine)
                self.cuts += [] if variable in self.cuts else [variable]
            else:
                self._direct(token.listing)
                lists.setdefault(id(token.listing.node), (token.listing, set()))[1].add(token.index)
        for view, indexes in lists.values():
            self.cuts += listing.remove(self.text, self.engine.home, view, indexes)

    def _goes_whole(self, token: ArgumentToken) -> bool:
        """Return whether every word of an evaluated argument goes, and with them its item."""
        if self.engine.evaluated is None:
            return False
        words = self.engine.words_of(token.item)
        gone = [other.word for other in self.removed if other.item == token.item]
        return all(word in gone for word in words)

    def _remove_word(self, token: ArgumentToken, word: ShellWord) -> None:
        words, value = self.engine.words_of(token.item), token.item.text()
        before = max((other.end for other in words if other.end <= word.start), default=None)
        if (
            before is None
        ):  # the first word of an evaluated argument: the separator behind it goes instead
            self._splice(
                token.item, word.start, min(w.start for w in words if w.start > word.start), ""
            )
            return
        if not _SEPARATOR.fullmatch(value[before : word.start]):
            before = word.start
        self._splice(token.item, before, word.end, "")

    def insert_after(self, token: ArgumentToken, groups: Seq[Seq[str]]) -> None:
        """New words directly after ``token``, written as it is; a group is a flag with its value."""
        if not groups:
            return
        if token.word is not None and not self._alone(token):
            self._insert_words(token.item, token.word, groups)
        elif token.word is not None:
            self._direct(token.listing)
            self.cuts += listing.insert(
                self.text, token.listing, token.index, list(map(_shell_word, _flat(groups)))
            )
        else:
            self._direct(token.listing)
            self.cuts += listing.insert(self.text, token.listing, token.index, _flat(groups))

    def _alone(self, token: ArgumentToken) -> bool:
        """Return whether an evaluated argument is one word of one list item."""
        evaluated = self.engine.evaluated
        return (
            evaluated is not None
            and token.item != evaluated.value
            and len(evaluated.of(token.item)) == 1
        )

    @property
    def appended_to(self) -> View | None:
        """The scalar that new words are added to; None when they become items of a list, or a scalar of their own."""
        if self.engine.evaluated is not None:
            return None if self._own_args() is not None else self.engine.evaluated.value
        return None if self.engine.script is None else self.engine.script.item

    def _own_args(self) -> View | None:
        evaluated = self.engine.evaluated
        return (
            None
            if evaluated is None or evaluated.container is None
            else evaluated.container.get("args")
        )

    def _append_evaluated(self, groups: Seq[Seq[str]]) -> None:
        args, evaluated = self._own_args(), self.engine.evaluated
        assert evaluated is not None
        words = list(map(_shell_word, _flat(groups)))
        if args is not None:
            self._direct(args)
            self.cuts += listing.insert(self.text, args, len(args.items()) - 1, words)
        elif evaluated.value is not None:
            present = evaluated.of(evaluated.value)
            if not present:
                raise evaluated.value.error(
                    f"{VARIABLE} is empty", hint="remove the variable; mpctl adds it again"
                )
            self._insert_words(evaluated.value, present[-1], groups)
        else:
            self.cuts.append(add_variable(self.text, evaluated, " ".join(words)))

    def append(self, groups: Seq[Seq[str]]) -> None:
        """New words at the end of the engine's command line; ``args`` is made when there is none."""
        if self.engine.evaluated is not None:
            self._append_evaluated(groups)
            return
        script = self.engine.script
        if script is not None:
            self._append_to_script(groups)
            return
        key = self.engine.key
        args = self.engine.home.get(key)
        if args is None and listing.has_key(self.engine.home, key):
            raise self.engine.home.error(
                f'"{key}" is empty',
                hint=f'write "{key}: []" or remove the line; nothing can be added to null',
            )
        home = args if args is not None or key != "args" else self.engine.home.get("command")
        if home is None:
            self.cuts.append(
                listing.add_key(self.text, self.document.root, self.engine.home, key, _flat(groups))
            )
            return
        self._direct(home)
        self.cuts += listing.insert(self.text, home, len(home.items()) - 1, _flat(groups))

    def _append_to_script(self, groups: Seq[Seq[str]]) -> None:
        script = self.engine.script
        assert script is not None
        last = len(script.words) - 1
        while last >= script.first and is_all_positional(script.words[last]):
            last -= 1
        self._insert_words(script.item, script.words[last], groups)

    def _insert_words(self, item: View, after: ShellWord, groups: Seq[Seq[str]]) -> None:
        node = self._direct(item)
        whole = pieces(self.text, item)
        separator = self._separator(item, after)
        new = "".join(
            separator + escape(" ".join(map(_shell_word, group)), node.style) for group in groups
        )
        if node.style == "" and node.flow and re.search(r"[\[\]{},]", new):
            raise item.error(
                "this unquoted script cannot hold the setting",
                hint="quote the script in the manifest",
            )
        position = whole[after.end - 1].end
        self.cut(position, position, new)

    def _separator(self, item: View, after: ShellWord) -> str:
        """Return the separator before the last flag up to ``after``: a blank, or a continued line."""
        start = 0 if self.engine.script is None else self.engine.script.first
        words = [word for word in self.engine.words_of(item) if word.end <= after.end]
        flags = [i for i in range(start, len(words)) if is_flag(words[i].text)]
        i = flags[-1] if flags else len(words) - 1
        before, begin = words[i - 1].end, words[i].start
        if i == 0 or not _SEPARATOR.fullmatch(item.text()[before:begin]):
            return " "
        whole = pieces(self.text, item)
        return self.text[whole[before].start : whole[begin - 1].end]

    def cut(self, start: int, end: int, text: str) -> None:
        self.cuts.append(listing.Cut(start, end, text))

    def _direct(self, view: View) -> Scalar:
        """The node at ``view`` for editing (typed as a scalar; callers with lists ignore it); an alias is refused."""
        if isinstance(view.node, Alias):
            raise _repeated(view, "this is an alias")
        node = view.node
        return node if isinstance(node, Scalar) else Scalar("", "", node.start, node.end, node.line)

    def _only_here(self, cut: listing.Cut) -> None:
        """A cut inside a node that an alias repeats would change two places."""
        for node in self.document.repeated:
            anchored = resolve(node)
            end = anchored.end - 1
            if isinstance(anchored, Sequence) and not anchored.flow:  # the end of its last line
                end = listing.line_end(self.text, listing.content_end(self.text, anchored))
            inside = cut.start < anchored.end and anchored.start < cut.end
            if inside or anchored.start < cut.start == cut.end <= end:
                raise _repeated(
                    self.engine.home, f"anchor &{anchored.anchor} is used in other places"
                )


def _repeated(view: View, why: str) -> InputError:
    return view.error(
        f"the engine's arguments are shared in this file ({why}); an edit would change both",
        hint="write the arguments where they are used, without anchor and alias",
    )


def _requote(text: str, opening: str, old: str) -> str:
    """Write text in the quotes of ``old``; single quotes go when the new characters do not need them."""
    if opening == "'" and quote(old) == old:
        return quote(text, "'")
    if opening == "'":
        return quote(text)
    return quote(text, '"') if opening == '"' else _shell_word(text)


def _shell_word(text: str) -> str:
    """``--flag='value'``: only the value is quoted."""
    flag, equals, value = text.partition("=")
    return f"{flag}={quote(value)}" if equals and flag.startswith("-") else quote(text)


def _stays_plain(node: Scalar, text: str, keep: int) -> bool:
    if node.flow and re.search(r"[\[\]{},]", text):
        return False
    if keep or text.startswith(("--", "-sc")):
        return (
            ": " not in text
            and " #" not in text
            and not text.endswith(":")
            and text == text.strip()
        )
    return plain_safe(text, flow=node.flow)


def _last(whole: Seq[Piece], node: Scalar) -> int:
    """Return the end of a scalar's text in the file, without the line breaks a block scalar ends with."""
    shown = len(node.value.rstrip())
    return whole[shown - 1].end if shown else node.end


def _flat(groups: Seq[Seq[str]]) -> list[str]:
    return [text for group in groups for text in group]
