"""Write the demo's stores from real data: monthly winds and the sea-surface climatology of Debian's ferret-datasets.

The winds are a time series (1980 to 1990) on a 2.5 degree grid; the climatology has gaps over land. Both are written
the way anyone would write sharded Zarr v3 with zarr-python.
"""

import netCDF4
import numpy as np
import zarr

DATA = "/usr/share/ferret-vis/data"


def put(group, name, data, dims, attributes, chunks=None, shards=None, fill=None):
    array = group.create_array(
        name, shape=data.shape, dtype=data.dtype, chunks=chunks or data.shape, shards=shards,
        dimension_names=dims, fill_value=fill if fill is not None else 0, attributes=attributes,
        compressors=zarr.codecs.ZstdCodec(level=3))
    array[...] = data


def axis(group, name, data, attributes):
    put(group, name, data, (name,), attributes)


def winds(path):
    """132 months, 73 latitudes, 144 longitudes in blocks of 6 x 12 x 12, 4 x 3 x 6 blocks a shard."""
    source = netCDF4.Dataset(f"{DATA}/monthly_navy_winds.cdf")
    source.set_auto_maskandscale(False)
    group = zarr.create_group(path, zarr_format=3, overwrite=True,
                              attributes={"title": "monthly winds, FNOC, 1980 to 1990"})
    axis(group, "time", source["TIME"][:], {"units": source["TIME"].units.replace("hour", "hours"),
                                            "calendar": "standard"})
    axis(group, "lat", source["FNOCY"][:], {"units": "degrees_north"})
    axis(group, "lon", source["FNOCX"][:], {"units": "degrees_east"})
    for name in ("UWND", "VWND"):
        data = source[name][:]
        put(group, name.lower(), data, ("time", "lat", "lon"),
            {"units": "m/s", "long_name": source[name].long_name.lower(), "_FillValue": float(np.float32(-99.9))},
            chunks=(6, 12, 12), shards=(24, 36, 72), fill=float(np.float32(-99.9)))


def sea(path):
    """12 months, 90 latitudes, 180 longitudes in blocks of 1 x 10 x 10: blocks of land alone are not stored."""
    source = netCDF4.Dataset(f"{DATA}/coads_climatology.cdf")
    source.set_auto_maskandscale(False)
    group = zarr.create_group(path, zarr_format=3, overwrite=True,
                              attributes={"title": "sea surface temperature, COADS climatology"})
    axis(group, "month", np.arange(1, 13, dtype=np.int32), {})
    axis(group, "lat", source["COADSY"][:], {"units": "degrees_north"})
    axis(group, "lon", source["COADSX"][:], {"units": "degrees_east"})
    fill = float(np.float32(-1e34))
    put(group, "sst", source["SST"][:], ("month", "lat", "lon"),
        {"units": "Celsius", "long_name": "sea surface temperature", "_FillValue": fill},
        chunks=(1, 10, 10), shards=(6, 30, 60), fill=fill)


def write_all(folder):
    winds(f"{folder}/winds.zarr")
    sea(f"{folder}/sea.zarr")
    for name in ("winds.zarr", "sea.zarr"):
        zarr.consolidate_metadata(f"{folder}/{name}")
