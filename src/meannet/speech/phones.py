"""The phones of TIMIT, their HMM states, and the classes in which errors are counted (body; appendix B)."""

from collections.abc import Iterable

SILENCE = "h#"  # before and after every utterance
GLOTTAL_STOP = "q"  # has states, but no class: it is deleted before phone errors are counted

# Lee and Hon (1989): 61 symbols are modelled as 48 classes, and 39 are scored. By class of 39: the classes of 48 that
# are taken together, each with its symbols.
FOLDING = {
    "aa": {"aa": "aa", "ao": "ao"},
    "ae": {"ae": "ae"},
    "ah": {"ah": "ah", "ax": "ax ax-h"},
    "aw": {"aw": "aw"},
    "ay": {"ay": "ay"},
    "b": {"b": "b"},
    "ch": {"ch": "ch"},
    "d": {"d": "d"},
    "dh": {"dh": "dh"},
    "dx": {"dx": "dx"},
    "eh": {"eh": "eh"},
    "er": {"er": "er axr"},
    "ey": {"ey": "ey"},
    "f": {"f": "f"},
    "g": {"g": "g"},
    "hh": {"hh": "hh hv"},
    "ih": {"ih": "ih", "ix": "ix"},
    "iy": {"iy": "iy"},
    "jh": {"jh": "jh"},
    "k": {"k": "k"},
    "l": {"l": "l", "el": "el"},
    "m": {"m": "m em"},
    "n": {"n": "n nx", "en": "en"},
    "ng": {"ng": "ng eng"},
    "ow": {"ow": "ow"},
    "oy": {"oy": "oy"},
    "p": {"p": "p"},
    "r": {"r": "r"},
    "s": {"s": "s"},
    "sh": {"sh": "sh", "zh": "zh"},
    "sil": {"sil": "h# pau", "cl": "pcl tcl kcl", "vcl": "bcl dcl gcl", "epi": "epi"},
    "t": {"t": "t"},
    "th": {"th": "th"},
    "uh": {"uh": "uh"},
    "uw": {"uw": "uw ux"},
    "v": {"v": "v"},
    "w": {"w": "w"},
    "y": {"y": "y"},
    "z": {"z": "z"},
}
TO_48 = {phone: one for parts in FOLDING.values() for one, phones in parts.items() for phone in phones.split()}
TO_39 = {phone: one for one, parts in FOLDING.items() for phones in parts.values() for phone in phones.split()}
CLASSES = tuple(FOLDING)  # the 39 that are scored

PHONES = tuple(sorted([*TO_48, GLOTTAL_STOP]))  # 61, in alphabetical order, which numbers them
NUMBER = {phone: number for number, phone in enumerate(PHONES)}
STATES_OF = tuple(5 if phone == SILENCE else 3 for phone in PHONES)  # how many states each phone has
FIRST = tuple(sum(STATES_OF[:number]) for number in range(len(PHONES)))  # the state in which each phone begins
N_STATES = sum(STATES_OF)  # 185: states are numbered phone by phone, from left to right
FEWEST_FRAMES = min(STATES_OF)  # of a path: a frame or more in every state of a phone
PHONE_OF_STATE = tuple(number for number, states in enumerate(STATES_OF) for _ in range(states))

NO_CLASS = -1
CLASS_OF_PHONE = tuple(CLASSES.index(TO_39[phone]) if phone in TO_39 else NO_CLASS for phone in PHONES)
CLASS_OF_STATE = tuple(CLASS_OF_PHONE[phone] for phone in PHONE_OF_STATE)  # NO_CLASS for the states of q


def numbers(symbols: Iterable[str]) -> list[int]:
    """The numbers of these symbols, which may be of either case."""
    found = []
    for symbol in symbols:
        if symbol.lower() not in NUMBER:
            raise ValueError(f"{symbol!r} is none of TIMIT's 61 phone symbols: {' '.join(PHONES)}")
        found.append(NUMBER[symbol.lower()])
    return found


def scored(phones: Iterable[int]) -> list[int]:
    """Classes of 39 for a sequence of phones: q is deleted, and silence is a class like the others.

    Neighbours that fall into one class, such as a closure and a pause, stay two, in reference and hypothesis alike.
    """
    return [CLASS_OF_PHONE[phone] for phone in phones if CLASS_OF_PHONE[phone] != NO_CLASS]
