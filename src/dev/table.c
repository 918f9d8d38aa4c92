/*
 * The table of devices. A GPU's kind has its place here: a file of its own (its driver opened by
 * dlopen, so that it builds and answers UNSUPPORTED without one), a declaration in device.h and a
 * line in the table.
 */
#include "dev/device.h"

#include <string.h>

static const TbDevice *const devices[] = {
	&tb_device_host,
};

#define N_DEVICES (sizeof(devices) / sizeof(devices[0]))

TbStatus
tb_device_find(const char *wanted, const TbDevice **device, TbError *err)
{
	char		names[256] = "";

	for (size_t i = 0; i < N_DEVICES; i++)
		if (devices[i]->serves(wanted))
		{
			*device = devices[i];
			return TB_OK;
		}
	for (size_t i = 0; i < N_DEVICES; i++)
	{
		if (i > 0)
			strncat(names, ", ", sizeof(names) - strlen(names) - 1);
		strncat(names, devices[i]->name, sizeof(names) - strlen(names) - 1);
	}
	*device = NULL;
	tb_fail(err, TB_E_UNSUPPORTED, "device is not supported");
	tb_error_detail(err, "device \"%s\"; there are: %s", wanted, names);
	tb_error_hint(err, "Use device \"host\" and copy batches to the device in the client.");
	return TB_E_UNSUPPORTED;
}

/* owns: *mem is the caller's, tb_dev_free. errors: UNSUPPORTED, INVALID, NOMEM, IO. */
TbStatus
tb_dev_alloc(const char *wanted, size_t bytes, TbDevMem *mem, TbError *err)
{
	TbStatus	status;

	memset(mem, 0, sizeof(*mem));
	mem->fd = -1;
	if (bytes == 0 || bytes > PTRDIFF_MAX)
		return tb_fail(err, TB_E_INVALID, "size of memory for batches is out of range");
	status = tb_device_find(wanted, &mem->device, err);
	if (status != TB_OK)
		return status;
	mem->bytes = bytes;
	status = mem->device->alloc(wanted, bytes, mem, err);
	if (status != TB_OK)
		tb_dev_free(mem);
	return status;
}

void
tb_dev_free(TbDevMem *mem)
{
	if (mem->device != NULL)
		mem->device->free(mem);
	memset(mem, 0, sizeof(*mem));
	mem->fd = -1;
}
