"""RSA keys of the simulation. They are the same in every run and protect nothing: anybody can read them here.

To search for primes would take longer than a run, and the library's search takes no seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import cycle
from random import Random
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPrivateNumbers,
    RSAPublicNumbers,
    rsa_crt_dmp1,
    rsa_crt_dmq1,
    rsa_crt_iqmp,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from postroad.message import Composer, Message, Signature
from postroad.security.guard import Protection
from postroad.security.keys import KeyRing
from postroad.security.signatures import signature_of
from postroad.wire.view import MessageView

EXPONENT = 65537
USERS = 2  # the last of the keys below belong to users
SENDER_SID = "S-1-5-21-1-2-3-1001"  # of every application that signs


@dataclass(frozen=True, slots=True)
class User:
    """Who signs: a key and its certificate (DER)."""

    key: RSAPrivateKey
    certificate: bytes

    def signature(self, message: Message, composer: Composer, *, transactional: bool) -> Signature:
        """The signature of the message as the composer's manager will send it. It covers no id and no time."""
        view = MessageView(composer.compose(message, 1, 0, transactional=transactional))
        return Signature(signature_of(view, self.key), self.certificate, sender_id=SENDER_SID)


@cache
def _keys() -> tuple[RSAPrivateKey, ...]:
    primes = [int(each, 36) for each in _PRIMES.split()]
    return tuple(_key(p, q) for p, q in zip(primes[::2], primes[1::2], strict=True))


def _key(p: int, q: int) -> RSAPrivateKey:
    d = pow(EXPONENT, -1, (p - 1) * (q - 1))
    crt = rsa_crt_dmp1(d, p), rsa_crt_dmq1(d, q), rsa_crt_iqmp(p, q)
    numbers = RSAPrivateNumbers(p, q, d, *crt, RSAPublicNumbers(EXPONENT, p * q))
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)  # the check takes longer than all the rest here


def exchange_keys() -> Iterator[RSAPrivateKey]:
    """Gives each manager its keys, one after the other. After the last key comes the first again."""
    return cycle(_keys()[:-USERS])


@cache
def sender() -> User:
    """The user whose certificate every manager knows."""
    return _user(-1)


@cache
def impostor() -> User:
    """A user who claims to be the sender, with a certificate that no manager knows."""
    return _user(-2)


def _user(index: int) -> User:
    key = _keys()[index]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"simulation {-index}")])
    made = datetime(2020, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, made, made.replace(year=2099))
    return User(key, builder.sign(key, SHA256()).public_bytes(Encoding.DER))


_PRIMES = """
1470kgtmvyibo1vzfd2kc8th4zlwviuy0wkrkrpp1hi7ssnw71gnm12bm7httdu26w3jx5gatacsb0turilqayqj7e1nxh90piip
yla22580cyqrbmsggty4qvy1gd6as5wxql0undzqjb9ewmxu0jvqwgz1kthlezlx2gmgld885l9417yy7alxch11cap083lanuh
ziw78vcxrfoi0m1g0aqws0awg54qesj34bsqgv0s4a633yl4b60vzmhjri6b0x3p5817dl06bgmpap8j3lxl58kcus10jbl5k7p
woub0zqvj1q9fzrmuinr4e75drqk7pyhno0hezw222w0ssvjnl3brakmoeoceceouni8nk2roa4mrmdwumikqcbzbc6cm6fp5wz
14kzrmwrmp8hm3ycv1wxm619pskdfc77q0ifiwugnkt25wuyhu41kq396u6p4rk00v7aghr58h5c65u6yu8s0krxlczx91gv4d3b
zs8hdrq86py49laanjxjoa9rczx7h21dirnqos8gwrbd9jwc28gvp9pcw3t2qlhxcti5ow5h2268va4sg0zy2uyha63mpbgit7t
141w6kg0ss3697o0mhex9poq6k1e5maeoqchyf8ubebtk0u20c8awbak1gjroprp0bb9x33x5sd29pxf8h343je34zibk5zfe6nv
11uxhw17xz731rb6l00theez67rj7v029cpa9r9a2emi6mc9svw6vonnq0dg3ou7y1oa5il87q0s1uuqxeace4njnqiq34mldu0d
11r57q8k7ml6wf7mml8tx21c2thhzspj7q7mw88ubrq1m72qwbhs0c8vxo7cbjkj8lnrlq14h1txw3xp1zq4lgbwo5r0pezqltyj
zhv8x5dr2djyrxn4o1r5weg0uahf8qhh5gqps6ix7zcvbdmcm84reapn2ksk4te8d33bkm4lxiucpl8map9kdl694gj7a8ulp6b
10379e1xpu8xevr5of15tiseo4j2gsl6qwz2hmwc9q80ds3ux0i3inhtqj5dbsi4sfpskdcp6pbkwe9jdvqlkb9hg20o7ntcjb2b
vc3k0pb5om2o8mjden2zfr8ytqi58rq9me4v4ou0pthv4g4lhweqzf13b54u6hi1gp3eg0jqcdecvlxgxf7u0zojjahql9cu9ad
zglipaehpb1w6v0o3w7rlp6xjggj4r4u4vkoft8l59t6ygxpkie5drexbb90acb9oh2ve37ghrm89l0c7zv6gjfj8gkmst749c5
ypm4rh3p7xzsobz6br9b33n6wchmwmnrs57w1gdhhk9nz7g5o91poafg5yfouwi3rsc0cmxx1hkje2uri6xf24sozl3mbpza1sh
104eip2jxu0qscybpm4bxhhgw7e1lq3xktci3ijt8yojkb4lnqe0yp0id9fl88f9yf0izvg4rpbgvojl6rs5s5pa1xzbc853uedp
wi1gcj6kzfhohuzrn2dc7677xp6ex8id9956v2ho9nab1un73wh3xqvhsx0kyl10tddjyem01xrb78h74gj25875s6x9dutawe5
w1ofeo1vy86m2fnt6llh10462um6ohguxbmr98u6s16e0c9cgz1gt96s8pq3gxtwnode5o71ae0kozt90a9vyjvuzzoxzfoq52t
vi89ny3hne6viuk3alrozsoix7iv791c0689897zku6ovxe0vbdpb61abbrfgu88chg6ho8ufdv4eypp5y4wssxd4x8q0jnoeb5
12xsnczwvus945eidttuvtgrk0znufl9osn2ucevehi47kcb6u9fqcr4p8lki035jkgbn6ouns3h9nmc018mrd395p1jdrsg8c4b
11okqje8zhxyriugjhr18xa0aifare58llfh2stezvuxhqx9a7levohrxpwxijx04zs62ulyu0ou1iao2ky9ocs0163o6xkx76rz
102px9ynt1kyfqvx09an1rwshdkkqfoa2phznvt5itfeft8cyagb1garlstmunwkvj5te5ze8193xwrvpywpxrlgk1r1bwqxesbz
yao04pjr2gn16s4obg4fiaebxoiydv5iiu51im36hlgchucr1w95txikw63hfbz333m15rw9t4l25gxcst8gftes15lmin74m2h
xqkou48zjjapdctx2zsfexf04n32cibahhuppotr2yr601wnd0ygedsus0ipa97bf4ta8lc0vzk5u1882skoo4ywspo1muvkwyv
vexwyzrwhsocfsb4sbg4w17jmdqdpj5h6ay1lakdpa8fgd28p8s6fwqvjlj9l7y4wcec0p0khal3e2upgetvpjtmgn2i8mgxv31
106wjs00yrr5iurgbjktl2xdtu159uzyiama21xi593nskq9towtn9ob7kfch1biuetqgabp2gycmdxagito6okm1dd09e012vad
x0o1mwjcej8mea2rj6l6haixmgp9yeq0nbyfdh9t5ogfjz1q3up1nrp5ji5ss0hlde20cvr1jniekr8oen5j3nr8s3i5e5q9pkv
yvdjk7oum88ahva6dztpw62at0f8ggsutycxjt3l57kc2hgx54lyugare2mo5spbyf1jrnn5agjzwe5lr6k9qw5g5q29z0wky9p
ykbbuvqn279t2a05z6uxff3xsg21ldqwjrp00jix2jp7kzhevwu10j8h4gjrkmbpmqqcsf0ogid7rsn74nilx5e8c7t6abz0dj1
"""


# The keys of all managers. They lie beside the disks, so a crash does not touch them. And what the directory says of
# them.


class Vault:
    """Session keys come from a generator of their own, so that they change nothing else in a run."""

    def __init__(self, seed: int, managers: Sequence[UUID]) -> None:
        self._random = Random(f"session keys {seed}")
        self._keys = exchange_keys()
        self._rings = {manager: KeyRing.make(self._next_key) for manager in managers}
        self._published = {manager: ring.public_keys for manager, ring in self._rings.items()}

    def _next_key(self, bits: int) -> RSAPrivateKey:
        return next(self._keys)

    def protection(self, manager: UUID) -> Protection:
        """The protection for one life of a manager: it starts with empty caches."""
        return Protection(self._random.randbytes, self._rings[manager], {SENDER_SID: (sender().certificate,)})

    def rotate(self, manager: UUID) -> KeyRing:
        ring = self._rings[manager] = self._rings[manager].rotated(self._next_key)
        return ring

    def publish(self, manager: UUID) -> None:
        self._published[manager] = self._rings[manager].public_keys

    def public_keys(self, manager: UUID) -> bytes:
        """The public keys in the directory."""
        return self._published[manager]
