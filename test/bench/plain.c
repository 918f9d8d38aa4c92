/*
 * The plain reader that others are put beside: libcurl's multi interface, N connections, ranges of a list, reused buffers,
 * decoders on D threads into reused slots, raw bytes landing in their slot. No checks, no retries, no index.
 *
 *   plain LIST BASE CONNECTIONS THREADS [SEED [EVERY [PASSES]]]
 *
 * LIST: lines "key offset length decoded_bytes codec"; codec raw, zstd, blosc, or pack: zstd of int16, unpacked to float32. SEED 0: in
 * order; EVERY: each so-manieth of the order. BASE file:DIR reads files with pread, on the decoding threads.
 * Prints one JSON line: bytes (decoded), seconds, blocks, cpu, wire.
 */
#include <blosc.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#define READY_MAX 24			/* jobs that wait for a decoder */

typedef enum Codec
{
	RAW, ZSTD, BLOSC, PACK
} Codec;

typedef struct Item
{
	char		key[160];
	size_t		offset, length, decoded;
	Codec		codec;
} Item;

typedef struct Job
{
	uint8_t    *bytes;
	size_t		len;
	const Item *item;
	struct Job *next;
} Job;

typedef struct Connection
{
	CURL	   *curl;
	Job		   *job;
} Connection;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER;
static Job *queue, *queue_tail, *spare;
static int queued, finished;
static size_t decoded_bytes, wire_bytes, largest, largest_decoded;
static const char *directory;	/* NULL: over HTTP */

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static size_t
body(char *data, size_t size, size_t n, void *arg)
{
	Job		   *job = ((Connection *) arg)->job;
	size_t		len = size * n;

	if (job->len + len > job->item->length)
		return 0;
	memcpy(job->bytes + job->len, data, len);
	job->len += len;
	return len;
}

static void
read_file(Job *job)
{
	char		path[512];
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", directory, job->item->key);
	fd = open(path, O_RDONLY);
	job->len = fd < 0 ? 0 : (size_t) pread(fd, job->bytes, job->item->length, (off_t) job->item->offset);
	close(fd);
}

static size_t
decode(ZSTD_DCtx *context, const Job *job, uint8_t *out, uint8_t *packed)
{
	const Item *item = job->item;

	switch (item->codec)
	{
		case RAW:
			return job->len;	/* it has landed where it is wanted */
		case ZSTD:
			return ZSTD_decompressDCtx(context, out, item->decoded, job->bytes, job->len);
		case BLOSC:
			return (size_t) blosc_decompress_ctx(job->bytes, out, item->decoded, 1);
		case PACK:
			{
				size_t		n = ZSTD_decompressDCtx(context, packed, item->decoded / 2, job->bytes, job->len) / 2;
				const int16_t *from = (const int16_t *) packed;
				float	   *to = (float *) out;

				for (size_t i = 0; i < n; i++)
					to[i] = from[i] == -32768 ? __builtin_nanf("") : (float) from[i] * 0.01f + 280.0f;
				return n * 4;
			}
	}
	return 0;
}

static void *
decoder(void *arg)
{
	ZSTD_DCtx  *context = ZSTD_createDCtx();
	uint8_t    *out = malloc(8 * largest_decoded);
	uint8_t    *packed = malloc(largest_decoded);
	int			slot = 0;

	memset(out, 1, 8 * largest_decoded);
	pthread_mutex_lock(&mutex);
	for (;;)
	{
		Job		   *job;
		size_t		n;

		while (queue == NULL && !finished)
			pthread_cond_wait(&more, &mutex);
		if (queue == NULL)
			break;
		job = queue;
		queue = job->next;
		if (queue == NULL)
			queue_tail = NULL;
		queued--;
		pthread_cond_signal(&room);
		pthread_mutex_unlock(&mutex);
		if (directory != NULL)
			read_file(job);
		n = decode(context, job, out + (size_t) (slot++ % 8) * largest_decoded, packed);
		if (n != job->item->decoded)
		{
			fprintf(stderr, "%s: %zu bytes instead of %zu\n", job->item->key, n, job->item->decoded);
			exit(1);
		}
		pthread_mutex_lock(&mutex);
		decoded_bytes += n;
		wire_bytes += job->len;
		job->next = spare;
		spare = job;
	}
	pthread_mutex_unlock(&mutex);
	ZSTD_freeDCtx(context);
	return NULL;
}

static Job *
take_job(const Item *item)
{
	Job		   *job;

	pthread_mutex_lock(&mutex);
	while (queued > READY_MAX)
		pthread_cond_wait(&room, &mutex);
	job = spare;
	if (job != NULL)
		spare = job->next;
	pthread_mutex_unlock(&mutex);
	if (job == NULL)
	{
		job = calloc(1, sizeof(Job));
		job->bytes = malloc(largest);
	}
	job->len = 0;
	job->item = item;
	return job;
}

static void
give_job(Job *job)
{
	pthread_mutex_lock(&mutex);
	job->next = NULL;
	if (queue_tail != NULL)
		queue_tail->next = job;
	else
		queue = job;
	queue_tail = job;
	queued++;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&mutex);
}

static void
begin(CURLM *multi, Connection *c, const Item *item, const char *base)
{
	char		url[512];
	char		range[64];

	c->job = take_job(item);
	snprintf(url, sizeof(url), "%s/%s", base, item->key);
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	snprintf(range, sizeof(range), "%zu-%zu", item->offset, item->offset + item->length - 1);
	curl_easy_setopt(c->curl, CURLOPT_RANGE, range);
	curl_multi_add_handle(multi, c->curl);
}

static void
transfer(const Item *items, const uint64_t *order, size_t n, size_t total, const char *base, int connections)
{
	CURLM	   *multi = curl_multi_init();
	Connection *all = calloc((size_t) connections, sizeof(Connection));
	size_t		issued = 0, done = 0;
	int			running;

	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long) connections);
	for (int i = 0; i < connections; i++)
	{
		all[i].curl = curl_easy_init();
		curl_easy_setopt(all[i].curl, CURLOPT_WRITEFUNCTION, body);
		curl_easy_setopt(all[i].curl, CURLOPT_WRITEDATA, &all[i]);
		curl_easy_setopt(all[i].curl, CURLOPT_PRIVATE, &all[i]);
		curl_easy_setopt(all[i].curl, CURLOPT_BUFFERSIZE, 512L * 1024);
		curl_easy_setopt(all[i].curl, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
		curl_easy_setopt(all[i].curl, CURLOPT_FAILONERROR, 1L);
		curl_easy_setopt(all[i].curl, CURLOPT_NOSIGNAL, 1L);
		if (issued < total)
			begin(multi, &all[i], &items[order[issued++ % n]], base);
	}
	while (done < total)
	{
		CURLMsg    *msg;
		int			left;

		curl_multi_perform(multi, &running);
		while ((msg = curl_multi_info_read(multi, &left)) != NULL)
		{
			Connection *c;

			curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &c);
			if (msg->data.result != CURLE_OK)
			{
				fprintf(stderr, "%s: %s\n", c->job->item->key, curl_easy_strerror(msg->data.result));
				exit(1);
			}
			curl_multi_remove_handle(multi, c->curl);
			give_job(c->job);
			done++;
			if (issued < total)
				begin(multi, c, &items[order[issued++ % n]], base);
		}
		if (done < total)
			curl_multi_poll(multi, NULL, 0, 100, NULL);
	}
	for (int i = 0; i < connections; i++)
		curl_easy_cleanup(all[i].curl);
	curl_multi_cleanup(multi);
	free(all);
}

static size_t
read_list(const char *path, Item **items)
{
	FILE	   *file = fopen(path, "r");
	size_t		n = 0, cap = 0;
	Item		item;
	char		codec[16];

	*items = NULL;
	if (file == NULL)
	{
		perror(path);
		exit(1);
	}
	while (fscanf(file, "%159s %zu %zu %zu %15s", item.key, &item.offset, &item.length, &item.decoded, codec) == 5)
	{
		item.codec = codec[0] == 'z' ? ZSTD : codec[0] == 'b' ? BLOSC : codec[0] == 'p' ? PACK : RAW;
		if (n == cap)
			*items = realloc(*items, sizeof(Item) * (cap = cap ? cap * 2 : 1024));
		if (item.length > largest)
			largest = item.length;
		if (item.decoded > largest_decoded)
			largest_decoded = item.decoded;
		(*items)[n++] = item;
	}
	fclose(file);
	return n;
}

/* The engine's, for the same seed. */
static uint64_t *
make_order(size_t n, uint64_t seed, uint64_t every)
{
	uint64_t   *order = malloc(n * sizeof(uint64_t));
	uint64_t	x = seed * 0x9E3779B97F4A7C15ull | 1;

	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t i = n - 1; seed != 0 && i > 0; i--)
	{
		uint64_t	t = order[i];
		uint64_t	j;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		j = x % (i + 1);
		order[i] = order[j];
		order[j] = t;
	}
	for (size_t i = 0; i * every < n; i++)
		order[i] = order[i * every];
	return order;
}

int
main(int argc, char **argv)
{
	pthread_t	threads[64];
	int			n_threads;
	uint64_t	every, passes;
	uint64_t   *order;
	Item	   *items;
	size_t		n;
	double		start, seconds;
	struct rusage use;

	if (argc < 5 || (n_threads = (int) strtol(argv[4], NULL, 10)) < 1 || n_threads > 64)
		return 2;
	curl_global_init(CURL_GLOBAL_ALL);
	every = argc > 6 ? strtoull(argv[6], NULL, 10) : 1;
	passes = argc > 7 ? strtoull(argv[7], NULL, 10) : 1;
	n = read_list(argv[1], &items);
	order = make_order(n, argc > 5 ? strtoull(argv[5], NULL, 10) : 0, every);
	n = (n + every - 1) / every;
	if (strncmp(argv[2], "file:", 5) == 0)
		directory = argv[2] + 5;
	start = now();
	for (int i = 0; i < n_threads; i++)
		pthread_create(&threads[i], NULL, decoder, NULL);
	if (directory == NULL)
		transfer(items, order, n, n * passes, argv[2], (int) strtol(argv[3], NULL, 10));
	for (size_t i = 0; directory != NULL && i < n * passes; i++)
		give_job(take_job(&items[order[i % n]]));
	pthread_mutex_lock(&mutex);
	finished = 1;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	seconds = now() - start;
	getrusage(RUSAGE_SELF, &use);
	printf("{\"bytes\": %zu, \"seconds\": %.5f, \"blocks\": %zu, \"cpu\": %.4f, \"wire\": %zu}\n", decoded_bytes, seconds,
		   n * passes, (double) (use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
		   (double) (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6, wire_bytes);
	return 0;
}
