/*
 * The plain reader that others are put beside: libcurl's multi interface, N connections, whole objects or ranges of a list, reused
 * buffers, zstd on D threads. No checks, no retries, no index.
 *
 *   plain LIST BASE CONNECTIONS THREADS      LIST: lines "key offset length decoded_bytes codec(raw|zstd)"; length 0: whole
 *
 * Prints one JSON line: bytes (decoded), seconds.
 */
#include <curl/curl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

typedef struct Item
{
	char		key[160];
	size_t		offset, length, decoded;
	int			zstd;
} Item;

typedef struct Job
{
	uint8_t    *bytes;
	size_t		cap, len;
	const Item *item;
	struct Job *next;
} Job;

typedef struct Slot
{
	CURL	   *curl;
	Job		   *job;
} Slot;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER;
static Job *queue, *queue_tail, *spare;
static int queued, finished;
static size_t decoded_bytes;

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
	Job		   *job = ((Slot *) arg)->job;
	size_t		len = size * n;

	if (job->len + len > job->cap)
	{
		job->cap = (job->len + len) * 2;
		job->bytes = realloc(job->bytes, job->cap);
	}
	memcpy(job->bytes + job->len, data, len);
	job->len += len;
	return len;
}

static void *
decoder(void *arg)
{
	ZSTD_DCtx  *context = ZSTD_createDCtx();
	size_t		cap = 64 << 20;
	uint8_t    *out = malloc(cap);

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
		pthread_mutex_unlock(&mutex);
		if (job->item->zstd)
			n = ZSTD_decompressDCtx(context, out, cap, job->bytes, job->len);
		else
		{
			memcpy(out, job->bytes, job->len);
			n = job->len;
		}
		if (n != job->item->decoded)
		{
			fprintf(stderr, "%s: %zu bytes instead of %zu\n", job->item->key, n, job->item->decoded);
			exit(1);
		}
		pthread_mutex_lock(&mutex);
		decoded_bytes += n;
		job->next = spare;
		spare = job;
		pthread_cond_signal(&room);
	}
	pthread_mutex_unlock(&mutex);
	ZSTD_freeDCtx(context);
	free(out);
	return NULL;
}

static Job *
take_job(const Item *item)
{
	Job		   *job;

	pthread_mutex_lock(&mutex);
	while (queued > 64)
		pthread_cond_wait(&room, &mutex);
	job = spare;
	if (job != NULL)
		spare = job->next;
	pthread_mutex_unlock(&mutex);
	if (job == NULL)
		job = calloc(1, sizeof(Job));
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
begin(CURLM *multi, Slot *slot, const Item *item, const char *base)
{
	char		url[512];
	char		range[64];

	slot->job = take_job(item);
	snprintf(url, sizeof(url), "%s/%s", base, item->key);
	curl_easy_setopt(slot->curl, CURLOPT_URL, url);
	snprintf(range, sizeof(range), "%zu-%zu", item->offset, item->offset + item->length - 1);
	curl_easy_setopt(slot->curl, CURLOPT_RANGE, item->length ? range : NULL);
	curl_multi_add_handle(multi, slot->curl);
}

static void
transfer(const Item *items, size_t n, const char *base, int connections)
{
	CURLM	   *multi = curl_multi_init();
	Slot	   *slots = calloc((size_t) connections, sizeof(Slot));
	size_t		issued = 0, done = 0;
	int			running;

	for (int i = 0; i < connections; i++)
	{
		slots[i].curl = curl_easy_init();
		curl_easy_setopt(slots[i].curl, CURLOPT_WRITEFUNCTION, body);
		curl_easy_setopt(slots[i].curl, CURLOPT_WRITEDATA, &slots[i]);
		curl_easy_setopt(slots[i].curl, CURLOPT_PRIVATE, &slots[i]);
		curl_easy_setopt(slots[i].curl, CURLOPT_BUFFERSIZE, 512L * 1024);
		curl_easy_setopt(slots[i].curl, CURLOPT_FAILONERROR, 1L);
		if (issued < n)
			begin(multi, &slots[i], &items[issued++], base);
	}
	while (done < n)
	{
		CURLMsg    *msg;
		int			left;

		curl_multi_perform(multi, &running);
		while ((msg = curl_multi_info_read(multi, &left)) != NULL)
		{
			Slot	   *slot;

			curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &slot);
			if (msg->data.result != CURLE_OK)
			{
				fprintf(stderr, "%s: %s\n", slot->job->item->key, curl_easy_strerror(msg->data.result));
				exit(1);
			}
			curl_multi_remove_handle(multi, slot->curl);
			give_job(slot->job);
			done++;
			if (issued < n)
				begin(multi, slot, &items[issued++], base);
		}
		if (done < n)
			curl_multi_poll(multi, NULL, 0, 100, NULL);
	}
	for (int i = 0; i < connections; i++)
		curl_easy_cleanup(slots[i].curl);
	curl_multi_cleanup(multi);
	free(slots);
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
		item.zstd = strcmp(codec, "zstd") == 0;
		if (n == cap)
			*items = realloc(*items, sizeof(Item) * (cap = cap ? cap * 2 : 1024));
		(*items)[n++] = item;
	}
	fclose(file);
	return n;
}

int
main(int argc, char **argv)
{
	pthread_t	threads[64];
	int			n_threads;
	Item	   *items;
	size_t		n;
	double		start, seconds;

	if (argc != 5 || (n_threads = (int) strtol(argv[4], NULL, 10)) < 1 || n_threads > 64)
		return 2;
	curl_global_init(CURL_GLOBAL_ALL);
	n = read_list(argv[1], &items);
	start = now();
	for (int i = 0; i < n_threads; i++)
		pthread_create(&threads[i], NULL, decoder, NULL);
	transfer(items, n, argv[2], (int) strtol(argv[3], NULL, 10));
	pthread_mutex_lock(&mutex);
	finished = 1;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	seconds = now() - start;
	printf("{\"bytes\": %zu, \"seconds\": %.5f}\n", decoded_bytes, seconds);
	return 0;
}
