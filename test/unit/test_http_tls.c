/*
 * Which TLS servers are trusted: only one whose certificate is valid, carries the name that was asked and
 * comes from the given CA; nothing older than TLS 1.2. The server is openssl's, the certificates are made here.
 */
#include "io_help.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define BODY "0123456789"

static char dir[] = "/tmp/tb-tls-XXXXXX";

static void
path_in_dir(char *path, size_t size, const char *name)
{
	(void) snprintf(path, size, "%s/%s", dir, name);
}

static void
add_extension(X509 *cert, int nid, const char *value)
{
	X509V3_CTX	context;
	X509_EXTENSION *extension;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	assert_non_null(extension);
	assert_int_equal(X509_add_ext(cert, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

/* Write a self-signed certificate and its key to NAME.pem; valid from now + from to now + to seconds. */
static void
make_certificate(const char *name, const char *alternative, long from, long to)
{
	char		path[128];
	char		file[32];
	EVP_PKEY   *key = EVP_EC_gen("P-256");
	X509	   *cert = X509_new();
	X509_NAME  *subject;
	FILE	   *out;

	assert_true(key != NULL && cert != NULL);
	(void) X509_set_version(cert, 2);
	(void) ASN1_INTEGER_set(X509_get_serialNumber(cert), (long) (tb_now_ns() & 0xffffff));
	(void) X509_gmtime_adj(X509_getm_notBefore(cert), from);
	(void) X509_gmtime_adj(X509_getm_notAfter(cert), to);
	(void) X509_set_pubkey(cert, key);
	subject = X509_get_subject_name(cert);
	(void) X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *) name, -1, -1, 0);
	(void) X509_set_issuer_name(cert, subject);
	add_extension(cert, NID_basic_constraints, "critical,CA:TRUE");
	add_extension(cert, NID_subject_alt_name, alternative);
	assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
	(void) snprintf(file, sizeof(file), "%s.pem", name);
	path_in_dir(path, sizeof(path), file);
	out = fopen(path, "w");
	assert_non_null(out);
	assert_int_equal(PEM_write_X509(out, cert), 1);
	assert_int_equal(PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
	assert_int_equal(fclose(out), 0);
	X509_free(cert);
	EVP_PKEY_free(key);
}

typedef struct Server
{
	pid_t		pid;
	int			port;
} Server;

/* Start openssl's server with a certificate; false where there is none. */
static bool
server_start(Server *server, const char *certificate, const char *version)
{
	char		path[128];
	char		line[256];
	int			out[2];
	FILE	   *said;

	path_in_dir(path, sizeof(path), certificate);
	assert_int_equal(pipe(out), 0);
	server->port = 0;
	server->pid = fork();
	assert_true(server->pid >= 0);
	if (server->pid == 0)
	{
		(void) dup2(out[1], 1);
		(void) dup2(open("/dev/null", O_RDWR), 2);
		if (chdir(dir) == 0)
			(void) execlp("openssl", "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", path, "-HTTP",
						  version, "-cipher", "ALL:@SECLEVEL=0", (char *) NULL);
		_exit(127);
	}
	close(out[1]);
	said = fdopen(out[0], "r");
	assert_non_null(said);
	while (server->port == 0 && fgets(line, sizeof(line), said) != NULL)
		if (strncmp(line, "ACCEPT", 6) == 0)
			server->port = (int) strtol(strrchr(line, ':') + 1, NULL, 10);
	if (server->port == 0)
		(void) waitpid(server->pid, NULL, 0);
	(void) fclose(said);
	return server->port != 0;
}

static void
server_stop(Server *server)
{
	(void) kill(server->pid, SIGKILL);
	(void) waitpid(server->pid, NULL, 0);
}

static TbStatus
fetch_with(int port, const char *ca, uint64_t *requests)
{
	char		url[64];
	char		ca_path[128];
	TbStoreSpec spec = {.url = url, .ca_file = ca != NULL ? ca_path : NULL};
	TbIoOptions options = {.retries = 2, .connect_timeout_ms = 3000, .first_byte_timeout_ms = 3000};
	Rig			rig;
	TbStore    *store;
	TbRead		r;

	path_in_dir(ca_path, sizeof(ca_path), ca != NULL ? ca : "");
	(void) snprintf(url, sizeof(url), "https://127.0.0.1:%d", port);
	rig_open(&rig, 0, &options);
	assert_int_equal(tb_store_open(rig.io, &spec, &store, NULL), TB_OK);
	(void) fetch_range(&rig, store, &r, "o", TB_RANGE_WHOLE, 0, 100);
	if (r.status == TB_OK)
		assert_bytes(&r, BODY, strlen(BODY));
	drop(&r);
	*requests = tb_store_counters(store).requests;
	tb_store_close(store);
	rig_close(&rig);
	return r.status;
}

static void
trust(void **state)
{
	static const struct
	{
		const char *certificate;	/* the server's */
		const char *ca;			/* ours; NULL: the system's */
		const char *version;
		TbStatus	status;
		bool		once;		/* not tried again */
	}			cases[] = {
		{"good.pem", "good.pem", "-tls1_2", TB_OK, true},
		{"good.pem", "good.pem", "-tls1_3", TB_OK, true},
		{"good.pem", NULL, "-tls1_2", TB_E_CONNECT, true},
		{"good.pem", "other.pem", "-tls1_2", TB_E_CONNECT, true},
		{"good.pem", "no-such-file.pem", "-tls1_2", TB_E_CONNECT, true},
		{"other.pem", "other.pem", "-tls1_2", TB_E_CONNECT, true},
		{"expired.pem", "expired.pem", "-tls1_2", TB_E_CONNECT, true},
		{"future.pem", "future.pem", "-tls1_2", TB_E_CONNECT, true},
		{"good.pem", "good.pem", "-tls1_1", TB_E_CONNECT, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Server		server;
		uint64_t	requests;
		TbStatus	status;

		if (!server_start(&server, cases[i].certificate, cases[i].version))
		{
			print_message("no openssl program: skipped\n");
			skip();
		}
		status = fetch_with(server.port, cases[i].ca, &requests);
		server_stop(&server);
		if (status != cases[i].status || (cases[i].once && requests != 1))
			fail_msg("case %zu: %s, %d requests", i, tb_status_name(status), (int) requests);
	}
}

static int
set_up(void **state)
{
	char		path[128];
	FILE	   *out;

	if (mkdtemp(dir) == NULL)
		return -1;
	make_certificate("good", "IP:127.0.0.1", -3600, 3600);
	make_certificate("other", "DNS:other.example", -3600, 3600);
	make_certificate("expired", "IP:127.0.0.1", -7200, -3600);
	make_certificate("future", "IP:127.0.0.1", 3600, 7200);
	path_in_dir(path, sizeof(path), "o");
	out = fopen(path, "w");
	if (out == NULL)
		return -1;
	(void) fprintf(out, "HTTP/1.0 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(BODY), BODY);
	return fclose(out);
}

static int
tear_down(void **state)
{
	static const char *const names[] = {"good.pem", "other.pem", "expired.pem", "future.pem", "o"};
	char		path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		path_in_dir(path, sizeof(path), names[i]);
		(void) unlink(path);
	}
	return rmdir(dir);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(trust),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
