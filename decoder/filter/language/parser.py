"""From tokens to a `SyntaxNode`, by recursive descent."""

# or    := and (("or" | "||") and)*
# and   := not (("and" | "&&") not)*
# not   := ("not" | "!") not | "(" or ")" | ("any" | "all") "(" test ")" | test
# test  := TEXT | FIELD | FIELD operator value | FIELD ["not"] "in" (range | set | value)
# range := value ".." value
# set   := "{" (range | value) ("," (range | value))* "}"

from __future__ import annotations

from .errors import FilterError
from .lexer import Token, TokenKind, tokens
from .literals import UNITS
from .tree import And, Comparison, Not, Or, Quantified, Range, SyntaxNode, Text, ValueSet, Word

MAX_DEPTH = 50
"""How deep parentheses and ``not`` may be nested."""

SIGNS = {"==": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "~": "~", "!~": "!~"}
WORDS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "matches": "~", "contains": "contains",
    "startswith": "startswith", "endswith": "endswith",
}  # fmt: skip
NEGATED = {"!=": "==", "!~": "~"}
KEYWORDS = frozenset({*WORDS, "and", "or", "not", "in", "any", "all"})


def parse(text: str) -> SyntaxNode:
    """The syntax tree of a filter. Raises `FilterError` with what is wrong and where."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    @property
    def ended(self) -> bool:
        return self.at == len(self.tokens) - 1

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind is not TokenKind.END:
            self.at += 1
        return token

    def error(self, message: str, token: Token) -> FilterError:
        return FilterError(message, self.text, token.start, token.end)

    def shown(self, token: Token) -> str:
        return "the end" if token.kind is TokenKind.END else repr(self.text[token.start : token.end][:60])

    def parse(self) -> SyntaxNode:
        if self.ended:
            raise self.error("the filter is empty; try: api == Produce and err != 0", self.token)
        node = self.disjunction()
        if not self.ended:
            hint = "a ( is missing before it" if self.token.is_sign(")") else "put 'and' or 'or' between two tests"
            raise self.error(f"{self.shown(self.token)} does not belong here; {hint}", self.token)
        return node

    def disjunction(self) -> SyntaxNode:
        terms = [self.conjunction()]
        while self.token.is_word("or") or self.token.is_sign("||"):
            self.take()
            terms.append(self.conjunction())
        return terms[0] if len(terms) == 1 else Or(tuple(terms), terms[0].start, terms[-1].end)

    def conjunction(self) -> SyntaxNode:
        terms = [self.negation()]
        while self.token.is_word("and") or self.token.is_sign("&&"):
            self.take()
            terms.append(self.negation())
        return terms[0] if len(terms) == 1 else And(tuple(terms), terms[0].start, terms[-1].end)

    def enter(self, token: Token) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels of parentheses and not", token)

    def negation(self) -> SyntaxNode:
        token = self.token
        if token.is_word("not") or token.is_sign("!"):
            self.enter(self.take())
            term = self.negation()
            self.depth -= 1
            return Not(term, token.start, term.end)
        if token.is_sign("("):
            self.enter(self.take())
            inner = self.disjunction()
            self.close(token)
            self.depth -= 1
            return inner
        if token.is_word("any", "all") and self.tokens[self.at + 1].is_sign("("):
            self.take()
            opening = self.take()
            comparison = self.test()
            if not isinstance(comparison, Comparison):
                raise FilterError(
                    f"{token.value.lower()}(...) takes a test of one field, such as: resp.topics[*].error_code != 0",
                    self.text,
                    comparison.start,
                    comparison.end,
                )
            end = self.close(opening)
            return Quantified(token.is_word("all"), comparison, token.start, end)
        return self.test()

    def close(self, opening: Token) -> int:
        if not self.token.is_sign(")"):
            wrong = self.token
            if wrong.kind is TokenKind.END:
                raise self.error("this ( is never closed", opening)
            raise self.error(f"expected ), not {self.shown(wrong)}", wrong)
        return self.take().end

    def test(self) -> SyntaxNode:
        token = self.take()
        if token.kind is TokenKind.STRING:
            word = Word(token.value, True, token.start, token.end)
            operator, _, sign = self.operator()
            if operator:
                raise self.error(f"put a field's name, without quotes, before {self.shown(sign)}", token)
            return Text(word, token.start, token.end)
        if token.kind is not TokenKind.WORD or token.is_word(*KEYWORDS):
            raise self.error(f"expected a field or a text in quotes, not {self.shown(token)}", token)
        name = Word(token.value, False, token.start, token.end)
        operator, negated, sign = self.operator()
        if not operator:
            return Comparison(name, "", False, None, token.start, token.end)
        value = self.set_or_range(sign) if operator == "in" else self.value(sign)
        return Comparison(name, operator, negated, value, token.start, value.end)

    def operator(self) -> tuple[str, bool, Token]:
        """Take an operator: (its name or "", whether it is negated, its token)."""
        token = self.token
        name = SIGNS.get(token.value) if token.kind is TokenKind.SIGN else None
        if token.kind is TokenKind.WORD:
            lower = token.value.lower()
            if lower == "in":
                self.take()
                return "in", False, token
            if lower == "not" and self.tokens[self.at + 1].is_word("in"):
                self.take()
                return "in", True, self.take()
            name = WORDS.get(lower)
        if name is None:
            return "", False, token
        self.take()
        return NEGATED.get(name, name), name in NEGATED, token

    def value(self, after: Token) -> Word:
        token = self.take()
        if token.kind not in (TokenKind.WORD, TokenKind.STRING):
            hint = "; in takes a set or a range" if token.is_sign("{") else ""
            raise self.error(f"expected a value after {self.shown(after)}, not {self.shown(token)}{hint}", token)
        quoted = token.kind is TokenKind.STRING
        if not quoted and token.value.lower() in KEYWORDS:
            hint = "; a field alone matches any" if token.is_word("any") else ""
            raise self.error(
                f"expected a value after {self.shown(after)}; if {token.value!r} is one, put it in quotes{hint}", token
            )
        is_number = token.value.replace(".", "", 1).isdecimal()
        if not quoted and is_number and self.token.kind is TokenKind.WORD and self.token.value in UNITS:
            unit = self.take()
            return Word(token.value, False, token.start, unit.end, unit.value)
        return Word(token.value, quoted, token.start, token.end)

    def item(self, after: Token) -> Word | Range:
        low = self.value(after)
        if not self.token.is_sign(".."):
            return low
        return Range(low, self.value(self.take()))

    def set_or_range(self, after: Token) -> Word | Range | ValueSet:
        """The value after ``in``."""
        if not self.token.is_sign("{"):
            return self.item(after)
        opening = self.take()
        items = [self.item(opening)]
        while self.token.is_sign(","):
            items.append(self.item(self.take()))
        if not self.token.is_sign("}"):
            wrong = self.token
            if wrong.kind is TokenKind.END:
                raise self.error("this { is never closed", opening)
            raise self.error(f"expected , or }}, not {self.shown(wrong)}", wrong)
        return ValueSet(tuple(items), opening.start, self.take().end)
