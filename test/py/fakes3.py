"""An S3 server in memory that checks every signature (SigV4) by itself and takes the scripted server's faults.

It keeps to what the protocol says where that matters to a client: conditional writes, pages of listings, multipart
uploads, regions, session tokens, clock skew. Buckets hold {key: Object}; nothing is written to disk.
"""

import hashlib
import hmac
import re
import threading
import time
import urllib.parse
from calendar import timegm
from xml.sax.saxutils import escape

import faulty


class Object:
    def __init__(self, data, etag=None):
        self.data = data
        self.etag = etag or '"' + hashlib.md5(data).hexdigest() + '"'
        self.modified = time.time()


class Bucket:
    def __init__(self, region="us-east-1", public=False):
        self.objects = {}
        self.uploads = {}
        self.region = region
        self.public = public
        #: access keys that may do nothing here
        self.denied = set()


class Key:
    """An access key: its secret, and the token that must come with it."""

    def __init__(self, secret, token=None):
        self.secret = secret
        self.token = token
        self.expired = False


class Refused(Exception):
    def __init__(self, status, code, **headers):
        super().__init__(code)
        self.status = status
        self.code = code
        self.headers = {k.replace("_", "-"): v for k, v in headers.items()}


def quote(text, safe="-_.~"):
    return urllib.parse.quote(text, safe=safe)


def signature(secret, scope, to_sign):
    key = ("AWS4" + secret).encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()


class Handler(faulty.Handler):
    def do_PUT(self):
        self.answer()

    def do_POST(self):
        self.answer()

    def do_DELETE(self):
        self.answer()

    def answer(self):
        self.sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        super().answer()

    # ---- signatures ----

    def check(self, bucket, query):
        """Who asks: the access key, None for anonymous; raises Refused where the signature does not hold."""
        store = self.server.faulty
        told = self.headers.get("Authorization")
        if told is None:
            store.anonymous += 1
            if not bucket.public:
                raise Refused(403, "AccessDenied")
            return None
        found = re.match(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?"
                         r"Signature=([0-9a-f]{64})$", told)
        if found is None:
            raise Refused(400, "AuthorizationHeaderMalformed")
        access, day, region, names, claimed = found.groups()
        known = store.access.get(access)
        if known is None:
            raise Refused(403, "InvalidAccessKeyId")
        self.check_time(day)
        if region != bucket.region:
            raise Refused(400, "AuthorizationHeaderMalformed", x_amz_bucket_region=bucket.region)
        names = names.split(";")
        must = {"host"} | {h.lower() for h in self.headers if h.lower().startswith("x-amz-")}
        if names != sorted(names) or not must <= set(names):
            raise Refused(403, "AccessDenied")
        body = self.headers.get("x-amz-content-sha256", "")
        if body != "UNSIGNED-PAYLOAD" and body != hashlib.sha256(self.sent).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch")
        pairs = sorted((quote(k), quote(v)) for k, v in query)
        path = urllib.parse.urlsplit("//h" + self.path).path
        canonical = "\n".join([
            self.command, quote(urllib.parse.unquote(path), "/-_.~"), "&".join(f"{k}={v}" for k, v in pairs),
            *(f"{n}:{' '.join((self.headers.get(n) or '').split())}" for n in names), "", ";".join(names), body])
        scope = (day, region, "s3", "aws4_request")
        to_sign = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], "/".join(scope),
                             hashlib.sha256(canonical.encode()).hexdigest()])
        if not hmac.compare_digest(signature(known.secret, scope, to_sign), claimed):
            raise Refused(403, "SignatureDoesNotMatch")
        self.check_token(known)
        store.signed += 1
        return access

    def check_time(self, day):
        stamp = self.headers.get("x-amz-date", "")
        if not re.match(r"\d{8}T\d{6}Z$", stamp) or not stamp.startswith(day):
            raise Refused(403, "AccessDenied")
        if abs(timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) - time.time() - self.server.faulty.clock) > 900:
            raise Refused(403, "RequestTimeTooSkewed")

    def check_token(self, known):
        token = self.headers.get("x-amz-security-token")
        if known.expired:
            raise Refused(400, "ExpiredToken")
        if token != known.token:
            raise Refused(403 if token is None else 400, "AccessDenied" if token is None else "InvalidToken")

    # ---- requests ----

    def place(self):
        """(bucket's name, key) of a request, by host or path."""
        path = urllib.parse.unquote(urllib.parse.urlsplit("//h" + self.path).path)
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host.endswith("." + self.server.faulty.domain):
            self.server.faulty.virtual += 1
            return host[: -len(self.server.faulty.domain) - 1], path[1:]
        name, _, key = path[1:].partition("/")
        return name, key

    def serve(self, path, action, options):
        store = self.server.faulty
        try:
            name, key = self.place()
            query = urllib.parse.parse_qsl(urllib.parse.urlsplit("//h" + self.path).query.replace("+", "%2B"), keep_blank_values=True)
            bucket = store.buckets.get(name)
            who = self.check(bucket or Bucket(), query)
            if bucket is None and self.command == "PUT" and key == "" and who:
                bucket = store.buckets.setdefault(name, Bucket())
                self.plain(200, {}, b"")
                return
            if bucket is None:
                raise Refused(404, "NoSuchBucket")
            if who in bucket.denied:
                raise Refused(403, "AccessDenied")
            with store.store_lock:
                answer = self.operate(bucket, key, dict(query))
            if isinstance(answer, Object):
                self.send_object(answer.data, action, options, answer.etag, answer.modified)
            else:
                self.plain(*answer)
        except Refused as e:
            region = f"<Region>{e.headers['x-amz-bucket-region']}</Region>" if "x-amz-bucket-region" in e.headers else ""
            body = f"<?xml version=\"1.0\"?><Error><Code>{e.code}</Code><Message>no</Message>{region}<RequestId>1</RequestId></Error>"
            self.plain(e.status, {"Content-Type": "application/xml", **e.headers}, body.encode())

    def operate(self, bucket, key, query):
        if key == "":
            if self.command == "GET" and query.get("list-type") == "2":
                return self.listing(bucket, query)
            if self.command in ("GET", "HEAD", "PUT"):
                return 200, {"x-amz-bucket-region": bucket.region}, b""
        elif self.command in ("GET", "HEAD"):
            return self.get(bucket, key)
        elif self.command == "PUT" and "partNumber" in query:
            upload = self.upload(bucket, key, query)
            upload[int(query["partNumber"])] = self.sent
            return 200, {"ETag": Object(self.sent).etag}, b""
        elif self.command == "PUT":
            return self.put(bucket, key, Object(self.sent))
        elif self.command == "POST" and "uploads" in query:
            name = f"upload-{len(bucket.uploads)}-{time.monotonic_ns()}"
            bucket.uploads[name] = (key, {})
            return 200, {}, (f"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>{escape(key)}</Key>"
                             f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>").encode()
        elif self.command == "POST" and "uploadId" in query:
            return self.complete(bucket, key, query)
        elif self.command == "DELETE" and "uploadId" in query:
            bucket.uploads.pop(query["uploadId"], None)
            return 204, {}, b""
        elif self.command == "DELETE":
            bucket.objects.pop(key, None)
            return 204, {}, b""
        raise Refused(405, "MethodNotAllowed")

    def get(self, bucket, key):
        found = bucket.objects.get(key)
        if found is None:
            raise Refused(404, "NoSuchKey")
        if self.headers.get("If-Match") not in (None, "*", found.etag):
            raise Refused(412, "PreconditionFailed")
        return found

    def put(self, bucket, key, new):
        old = bucket.objects.get(key)
        if self.headers.get("If-None-Match") == "*" and old is not None:
            raise Refused(412, "PreconditionFailed")
        if "If-Match" in self.headers and (old is None or old.etag != self.headers["If-Match"]):
            raise Refused(412, "PreconditionFailed")
        bucket.objects[key] = new
        return 200, {"ETag": new.etag}, b""

    def upload(self, bucket, key, query):
        found = bucket.uploads.get(query["uploadId"])
        if found is None or found[0] != key:
            raise Refused(404, "NoSuchUpload")
        return found[1]

    def complete(self, bucket, key, query):
        parts = self.upload(bucket, key, query)
        named = re.findall(r"<PartNumber>\s*(\d+)\s*</PartNumber>", self.sent.decode())
        etags = re.findall(r"<ETag>\s*(.*?)\s*</ETag>", self.sent.decode())
        told = [(int(n), e.replace("&quot;", '"')) for n, e in zip(named, etags)]
        if not told or told != sorted(told) or any(n not in parts or Object(parts[n]).etag != e for n, e in told):
            raise Refused(400, "InvalidPart")
        whole = b"".join(parts[n] for n, _ in told)
        new = Object(whole, f'"{hashlib.md5(whole).hexdigest()}-{len(told)}"')
        self.put(bucket, key, new)
        del bucket.uploads[query["uploadId"]]
        return 200, {}, f"<CompleteMultipartUploadResult><ETag>{escape(new.etag)}</ETag></CompleteMultipartUploadResult>".encode()

    def listing(self, bucket, query):
        """A page of ListObjectsV2; groups of a delimiter count as entries."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(int(query.get("max-keys", 1000)), 1000)
        write = quote if query.get("encoding-type") == "url" else escape
        entries, groups, token = [], set(), None
        for key in sorted(bucket.objects, key=lambda k: k.encode()):
            if not key.startswith(prefix) or key.encode() <= after.encode():
                continue
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            group = key[: end + len(delimiter)] if end >= 0 else None
            if group is not None and (group in groups or after.startswith(group)):
                if group in groups and entries:
                    last = key
                continue
            if len(entries) == most:
                token = last
                break
            last = key
            if group is not None:
                groups.add(group)
                entries.append(f"<CommonPrefixes><Prefix>{write(group)}</Prefix></CommonPrefixes>")
            else:
                found = bucket.objects[key]
                entries.append(f"<Contents><Key>{write(key)}</Key><Size>{len(found.data)}</Size><ETag>{escape(found.etag)}</ETag>"
                               "<LastModified>2020-01-01T00:00:00.000Z</LastModified></Contents>")
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        encoding = "<EncodingType>url</EncodingType>" if write is quote else ""
        body = (f"<?xml version=\"1.0\"?><ListBucketResult><KeyCount>{len(entries)}</KeyCount>{encoding}"
                f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{more}{''.join(entries)}</ListBucketResult>")
        return 200, {"Content-Type": "application/xml"}, body.encode()


class FakeS3(faulty.Faulty):
    """Buckets `tensorbank` and `public`; the access key of every test."""

    access_key = "TESTKEY0000000000001"
    secret_key = "testsecret/0000+00000000000000000000=001"
    domain = "s3.localhost"

    def __init__(self, tls=None, seed=1):
        self.buckets = {"tensorbank": Bucket(), "public": Bucket(public=True)}
        self.access = {self.access_key: Key(self.secret_key)}
        self.signed = self.anonymous = self.virtual = 0
        # operations are atomic
        self.store_lock = threading.Lock()
        super().__init__("/nonexistent", tls, seed, Handler)
        self.endpoint = self.url
